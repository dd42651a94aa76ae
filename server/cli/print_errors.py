"""Prints docs/errors.md from the tables of error codes and of the provider's reasons."""

from server.error_codes import TOPICS, ErrorCode
from server.novita.transport.reasons import REASONS, ProviderReason

INTRODUCTION = """# Errors

Every error code: when it occurs, whether the same request may succeed later, and what to do. `help` of an error in the
API is the last column. Programs should switch on `code`; messages may change. Printed by `make errors`: do not edit.

[clients.md](clients.md) has retries in code, [live.md](live.md) the close codes of WebSockets,
[webhooks.md](webhooks.md) the errors of deliveries and [health.md](health.md) those of probes.
"""

PROVIDER = """## The provider's reasons

What becomes of a refusal by the provider. *Next* means that a create goes on to its next product or region; *stop* that
the operation fails at once; *wait* that the same call is sent again later. A reason that is not listed is judged by its
parts (a balance, a limit, something not found), by the message, then by the HTTP status. A 404 that is not JSON comes
from a gateway: the call counts as unanswered.
"""


def errors_page() -> str:
    return "\n".join([INTRODUCTION, *(_topic(*topic) for topic in TOPICS), PROVIDER, _provider_table()])


def _topic(title: str, where: str, codes: tuple[ErrorCode, ...]) -> str:
    rows = [
        f"| {row.code} | {row.when} | {RETRYABLE[row.retryable]} | {row.help} |"
        for row in sorted(codes, key=lambda row: row.code)
    ]
    return f"## {title}\n\nIn {where}.\n\n" + _table("| code | when | retryable | what to do |", rows)


def _provider_table() -> str:
    by_meaning: dict[ProviderReason, list[str]] = {}
    for word, meaning in REASONS.items():
        by_meaning.setdefault(meaning, []).append(word)
    rows = [
        f"| {', '.join(sorted(words))} | {meaning.code or meaning.error.code} "
        f"| {RETRYABLE[meaning.error.retryable]} | {_in_a_create(meaning)} |"
        for meaning, words in by_meaning.items()
    ]
    return _table("| reason | code | retryable | in a create |", rows)


def _in_a_create(meaning: ProviderReason) -> str:
    if meaning.error.tries_next:
        return "next"
    return "wait" if meaning.error.retryable or not meaning.error.is_certain_refusal else "stop"


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rows, ""])


RETRYABLE = {True: "yes", False: "no", None: "see `retryable`"}
