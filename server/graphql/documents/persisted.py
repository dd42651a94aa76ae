"""Persisted documents: clients send the SHA-256 of the text instead of the text."""

from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import orjson

from server.errors import StartupProblem
from server.graphql.request import HASH, is_object

MAX_CHARACTERS = 4 * 1024 * 1024


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class ApqCache:
    """Automatic persisted queries: texts that clients sent with their hash, the latest ones."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._max_characters = max_characters
        self._characters = 0

    def find(self, hash: str) -> str | None:
        text = self._texts.get(hash)
        if text is not None:
            self._texts.move_to_end(hash)
        return text

    def keep(self, hash: str, text: str) -> None:
        if hash in self._texts:
            return
        self._texts[hash] = text
        self._characters += len(text)
        while self._characters > self._max_characters:
            _, oldest = self._texts.popitem(last=False)
            self._characters -= len(oldest)


def read_persisted(path: Path) -> dict[str, str]:
    """Every text of a folder of .graphql files, or of a manifest, by its hash; raises StartupProblem.

    A manifest is the JSON that build tools write: {hash: text}, or Apollo's {"operations": [{"body": text}]}.
    """
    try:
        if path.is_dir():
            texts = [_text(file) for file in sorted(path.rglob("*.graphql"))]
            return {hash_of(text): text for text in texts}
        if path.suffix == ".graphql":
            text = _text(path)
            return {hash_of(text): text}
        return _manifest(path.read_bytes(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise StartupProblem(f"PERSISTED_DOCUMENTS can't be read: {path}: {error}") from None


def _text(file: Path) -> str:
    """As clients send it: without the line break at the end of the file."""
    return file.read_text().strip()


def _manifest(raw: bytes, path: Path) -> dict[str, str]:
    try:
        manifest: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise StartupProblem(f"PERSISTED_DOCUMENTS is neither a folder nor JSON: {path}") from None
    texts: dict[str, str] = {}
    for id, text in _entries(manifest):
        if not isinstance(text, str):
            raise StartupProblem(f"PERSISTED_DOCUMENTS has no text for {id!r}: {path}")
        hash = hash_of(text)
        if isinstance(id, str) and HASH.fullmatch(id.removeprefix("sha256:")) and id.removeprefix("sha256:") != hash:
            raise StartupProblem(f"PERSISTED_DOCUMENTS has a text under a hash that is not its own, {id!r}: {path}")
        texts[hash] = text
    return texts


def _entries(manifest: object) -> list[tuple[object, object]]:
    if not is_object(manifest):
        return []
    if isinstance(manifest.get("operations"), list):
        operations = cast("list[object]", manifest["operations"])
        return [(each.get("id"), each.get("body")) if is_object(each) else (each, None) for each in operations]
    return list(manifest.items())
