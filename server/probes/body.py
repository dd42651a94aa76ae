"""What a page says about itself: gateways answer 200 with an error page more often than one would think."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

# The words of an error page. A new one goes here and nowhere else.
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

# An error page has little to say. On a longer page a headline has to be the phrase and nothing else: people write
# about bad gateways, too.
SHORT_PAGE = 2_000
# Of a body as short as this every word counts.
SHORT_BODY = 300
# Where programs put what is wrong.
TELLING = ("error", "message", "detail", "status", "title", "reason")

LONGEST_HEADLINE = 300

# The body may be anybody's, so each of these passes over it once: none may begin again at every `<`.
_PHRASE = re.compile(rf"\b(?:{'|'.join(re.escape(each) for each in PHRASES)})\b")
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-3]\b[^<>]*>(.{0,300})", re.IGNORECASE | re.DOTALL)
_HEADING_END = re.compile(r"</h[1-3]", re.IGNORECASE)
_UNSEEN = re.compile(r"<(script|style|title)\b.*?(?:</\1|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_BETWEEN = re.compile("[|:·•\u2013\u2014-]")
_BEFORE = re.compile(r"^\W*(?:(?:http|error|status|code|\d{3})\b\W*)*")
_BEHIND = re.compile(r"\W*(?:\d{3})?\W*$")


def error_in(body: bytes, content_type: str) -> str | None:
    """The phrase by which a body says that it is an error; None when it says no such thing."""
    text = body.decode("utf-8", "replace")
    if "json" in content_type or text.lstrip()[:1] in ("{", "["):
        return _first(_told(text))
    if "html" not in content_type and not text.lstrip().startswith("<"):
        return _first([text]) if len(text.strip()) <= SHORT_BODY else None
    seen = " ".join(_TAG.sub(" ", _UNSEEN.sub(" ", text)).split())
    headlines = list(_headlines(text))
    if len(seen) <= SHORT_BODY:
        return _first([*headlines, seen])
    if len(seen) <= SHORT_PAGE:
        return _first(headlines)
    return next((phrase for headline in headlines for phrase in _bare(headline)), None)


def _first(texts: list[str]) -> str | None:
    return next((found[0] for text in texts if (found := _PHRASE.search(text.lower()))), None)


def _headlines(text: str) -> Iterator[str]:
    """The title and the first heading."""
    title, heading = _TITLE.search(text), _HEADING.search(text)
    if title is not None:
        yield " ".join(title[1][:LONGEST_HEADLINE].split())
    if heading is not None:
        yield " ".join(_TAG.sub(" ", _HEADING_END.split(heading[1], maxsplit=1)[0]).split())


def _bare(headline: str) -> Iterator[str]:
    """A headline that is nothing but a phrase, a status code and perhaps the name of the site."""
    for part in (headline.lower(), *_BETWEEN.split(headline.lower())):
        bare = " ".join(_BEHIND.sub("", _BEFORE.sub("", part)).split())
        if bare in PHRASES:
            yield bare


def _told(text: str) -> list[str]:
    """What a JSON body says in the places meant for that."""
    try:
        found: Any = orjson.loads(text)
    except ValueError:
        return [text] if len(text.strip()) <= SHORT_BODY else []
    if not isinstance(found, dict):
        return []
    told: list[str] = []
    for key in TELLING:
        value: Any = found.get(key)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(value, str):
            told.append(value)
        elif isinstance(value, dict):
            told.extend(str(each) for each in value.values() if isinstance(each, str))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
    return told
