"""The tables of error codes are complete, and docs/errors.md is printed from them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from schema.ids import NOUNS
from server import errors
from server.cli.print_errors import errors_page
from server.config import Settings
from server.enums import StepReason
from server.error_codes import BY_CODE, TOPICS, help_of
from server.novita.transport.reasons import REASONS

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
# Calls whose argument is an error code, by the position of that argument.
CALLS = {
    "Refused": 0,
    "Problem": 0,
    "_problem": 0,
    "Invalid": 0,
    "IllegalTransition": 0,
    "NoCapacity": 0,
    "Reason": 0,
    "GiveUp": 0,
    "Failure": 0,
    "RegionRefusal": 2,
    "HttpError": 2,
    "Verb": 2,
    "_refuse": 1,
    "_write_refusal": 1,
    "_refuse_body": 1,
    "name_problems": 1,
}
# Values of "code" that are not errors of the API.
OTHER_FILES = {"server/webhooks/sender.py", "server/probes/problems.py", "server/probes/results.py"}

# No errors: what a status or a step of a lifetime is due to.
STATUS_REASONS = {"STOPPED_OUTSIDE", "STARTED_OUTSIDE", "SPOT_RECLAIMED", "MACHINE_MAY_EXIST", *StepReason}


def test_every_code_in_the_sources_has_a_row():
    used = {code for file in _sources() for code in _codes_of(ast.parse(file.read_text()))}

    assert len(used) > 90  # the search itself works
    assert sorted(used - BY_CODE.keys()) == []


def test_every_row_is_used():
    sources = "\n".join(file.read_text() for file in _sources())
    nouns = {*NOUNS.values(), *re.findall(r'NotFound\("([\w ]+)"', sources)}
    missing = {f"{noun.upper().replace(' ', '_')}_NOT_FOUND" for noun in nouns}
    words = {*re.findall(r"\b[A-Z][A-Z0-9_]+\b", sources), *missing}

    assert sorted(BY_CODE.keys() - words) == []


def test_every_code_that_the_schema_mentions_has_a_row():
    sdl = (ROOT / "schema/schema.graphql").read_text()
    descriptions = " ".join(re.findall(r'"""(.*?)"""', sdl, re.DOTALL))
    described = set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", descriptions))
    values = set(re.findall(r"^  ([A-Z][A-Z0-9_]+)$", sdl, re.MULTILINE))  # of enums
    settings = {name.upper() for name in Settings.model_fields}

    assert "INSTANCE_NAME_TAKEN" in described
    assert sorted(described - values - settings - STATUS_REASONS - BY_CODE.keys()) == []


def test_provider_errors_agree_with_their_row():
    for error in _subclasses(errors.NovitaError):
        row = BY_CODE[error.code]
        if error is not errors.InvalidStateChange:  # final for the call; the operation may be repeated later
            assert (row.code, row.retryable) == (error.code, error.retryable)
    for word, meaning in REASONS.items():
        assert (meaning.code or meaning.error.code) in BY_CODE, word


def test_every_row_says_when_and_what_to_do():
    for _, _, codes in TOPICS:
        assert len({row.code for row in codes}) == len(codes)
        for row in codes:
            assert CODE.fullmatch(row.code)
            assert row.when.endswith(".")
            assert row.help.endswith(".")
    assert help_of("IMAGE_NOT_FOUND") == "Check the image's name and tag; a private image needs registryAuthId."
    assert help_of("NEVER_HEARD_OF") is None


def test_the_page_is_fresh():
    assert (ROOT / "docs/errors.md").read_text() == errors_page(), "run `make errors`"


def _sources() -> list[Path]:
    files = [*(ROOT / "server").rglob("*.py"), *(ROOT / "schema").rglob("*.py")]
    excluded = ("server/simulator", "server/error_codes", *OTHER_FILES)
    return [file for file in files if not str(file.relative_to(ROOT)).startswith(excluded)]


def _codes_of(tree: ast.Module) -> Iterator[str]:
    """Codes in known calls, in assignments to `code`, and in dicts with the key "code"."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def text_of(node: ast.expr | None) -> Iterator[str]:
        if isinstance(node, ast.IfExp):
            yield from text_of(node.body)
            yield from text_of(node.orelse)
        value = constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
        if isinstance(value, str) and CODE.fullmatch(value):
            yield value

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                position = CALLS.get(name)
                if position is not None and len(node.args) > position:
                    yield from text_of(node.args[position])
                if name == "__init__" and node.args:
                    yield from text_of(node.args[0])
                for keyword in node.keywords:
                    if keyword.arg in ("code", "failure_code"):
                        yield from text_of(keyword.value)
            case ast.Assign(targets=[ast.Name(id="code")], value=value):
                yield from text_of(value)
            case ast.AnnAssign(target=ast.Name(id="code"), value=value):
                yield from text_of(value)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "code":
                        yield from text_of(value)
            case ast.Return(value=ast.Tuple(elts=[first, *_])):
                yield from (each for each in text_of(first) if "_" in each)
            case _:
                pass


def _subclasses(kind: type[errors.NovitaError]) -> Iterator[type[errors.NovitaError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)
