"""How much one document may ask for."""

from dataclasses import dataclass

from graphql import GraphQLError

from server.config import Settings


@dataclass(frozen=True, slots=True)
class Limits:
    """From the settings of the same names, with `query_max_` before them; the values here are for whoever has none."""

    characters: int = 50_000
    tokens: int = 1_000
    depth: int = 16
    fields: int = 1_000
    aliases: int = 100
    directives: int = 50
    root_fields: int = 20
    cost: int = 20_000

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        return cls(
            characters=settings.query_max_characters,
            tokens=settings.query_max_tokens,
            depth=settings.query_max_depth,
            fields=settings.query_max_fields,
            aliases=settings.query_max_aliases,
            directives=settings.query_max_directives,
            root_fields=settings.query_max_root_fields,
            cost=settings.query_max_cost,
        )


def too_much(what: str, limit: str, allowed: int, found: int | None = None) -> GraphQLError:
    """`limit` is the setting's name, so that people find out what to turn."""
    seen = "" if found is None else f" It has {found}."
    extensions: dict[str, object] = {"code": "LIMIT_EXCEEDED", "retryable": False, "limit": limit, "allowed": allowed}
    if found is not None:
        extensions["found"] = found
    return GraphQLError(f"The document may have at most {allowed} {what}.{seen}", extensions=extensions)
