"""Which text the database can store."""


def is_storable(text: str) -> bool:
    """PostgreSQL takes no NUL, and UTF-8 can't encode lone surrogates, which JSON can contain."""
    return "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text)
