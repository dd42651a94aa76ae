"""Recognises error pages that are served with status 200, as gateways often do."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

# The phrases of error pages. Add new ones here.
PHRASES = (
    "bad gateway",
    "service unavailable",
    "service temporarily unavailable",
    "internal server error",
    "gateway timeout",
    "gateway time-out",
    "gateway error",
    "upstream error",
    "proxy error",
    "temporarily unavailable",
    "maintenance mode",
    "application error",
)

# Characters of visible text. Error pages are short; on a longer page the headline must be exactly the phrase, because
# articles mention bad gateways, too.
SHORT_PAGE_MAX = 2_000
# In a body this short the phrase may be anywhere.
SHORT_BODY_MAX = 300
# Keys of JSON error messages.
MESSAGE_KEYS = ("error", "message", "detail", "status", "title", "reason")

HEADLINE_MAX = 300

# Bodies are untrusted: each pattern runs in linear time, none restarts at every `<`.
_PHRASE = re.compile(rf"\b(?:{'|'.join(re.escape(each) for each in PHRASES)})\b")
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-3]\b[^<>]*>(.{0,300})", re.IGNORECASE | re.DOTALL)
_HEADING_END = re.compile(r"</h[1-3]", re.IGNORECASE)
_INVISIBLE = re.compile(r"<(script|style|title)\b.*?(?:</\1|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_SEPARATOR = re.compile("[|:·•\u2013\u2014-]")
_PREFIX = re.compile(r"^\W*(?:(?:http|error|status|code|\d{3})\b\W*)*")
_SUFFIX = re.compile(r"\W*(?:\d{3})?\W*$")


def find_error_phrase(body: bytes, content_type: str) -> str | None:
    """The phrase that marks the body as an error page; None if there is none."""
    text = body.decode("utf-8", "replace")
    if "json" in content_type or text.lstrip()[:1] in ("{", "["):
        return _first_phrase(_json_messages(text))
    if "html" not in content_type and not text.lstrip().startswith("<"):
        return _first_phrase([text]) if len(text.strip()) <= SHORT_BODY_MAX else None
    visible = " ".join(_TAG.sub(" ", _INVISIBLE.sub(" ", text)).split())
    headlines = list(_headlines(text))
    if len(visible) <= SHORT_BODY_MAX:
        return _first_phrase([*headlines, visible])
    if len(visible) <= SHORT_PAGE_MAX:
        return _first_phrase(headlines)
    return next((phrase for headline in headlines for phrase in _bare_phrases(headline)), None)


def _first_phrase(texts: list[str]) -> str | None:
    return next((match[0] for text in texts if (match := _PHRASE.search(text.lower()))), None)


def _headlines(text: str) -> Iterator[str]:
    """The title and the first heading."""
    title, heading = _TITLE.search(text), _HEADING.search(text)
    if title is not None:
        yield " ".join(title[1][:HEADLINE_MAX].split())
    if heading is not None:
        yield " ".join(_TAG.sub(" ", _HEADING_END.split(heading[1], maxsplit=1)[0]).split())


def _bare_phrases(headline: str) -> Iterator[str]:
    """The phrases of a headline that is only a phrase, a status code and perhaps the site's name."""
    for part in (headline.lower(), *_SEPARATOR.split(headline.lower())):
        bare = " ".join(_SUFFIX.sub("", _PREFIX.sub("", part)).split())
        if bare in PHRASES:
            yield bare


def _json_messages(text: str) -> list[str]:
    """The messages of a JSON body."""
    try:
        parsed: Any = orjson.loads(text)
    except ValueError:
        return [text] if len(text.strip()) <= SHORT_BODY_MAX else []
    if not isinstance(parsed, dict):
        return []
    messages: list[str] = []
    for key in MESSAGE_KEYS:
        value: Any = parsed.get(key)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(value, str):
            messages.append(value)
        elif isinstance(value, dict):
            messages.extend(str(each) for each in value.values() if isinstance(each, str))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
    return messages
