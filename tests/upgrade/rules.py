"""Rules for migrations that run while processes of the previous release use the same tables."""

import re

# Everything else may hold millions of rows.
SMALL = frozenset(
    {"project", "token", "event_log", "job_pause", "job_schedule", "job_worker", "webhook_secret", "alembic_version"}
)
CREATES = re.compile(r"\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.IGNORECASE)
INDEXES = re.compile(
    r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)[^;\"]*?\bON\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE
)
ALTERS = re.compile(r"\bALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?(\w+)([^\"]*)", re.IGNORECASE)
# Each scans or rewrites every row under an exclusive lock.
SLOW = {
    "ADD CONSTRAINT without NOT VALID": re.compile(
        r"\bADD\s+CONSTRAINT\s+\w+\s+(?:CHECK|FOREIGN)(?![^\"]*NOT\s+VALID)", re.IGNORECASE
    ),
    "SET NOT NULL": re.compile(r"\bSET\s+NOT\s+NULL", re.IGNORECASE),
    "another type": re.compile(r"\bALTER\s+COLUMN\s+\w+\s+(?:SET\s+DATA\s+)?TYPE\b", re.IGNORECASE),
    "a default that differs from row to row": re.compile(
        r"\bADD\s+COLUMN[^,\"]*\bDEFAULT\s+(?:gen_random_uuid|clock_timestamp|random|nextval)", re.IGNORECASE
    ),
}
# Each breaks who still uses it.
TAKES_AWAY = re.compile(r"\b(DROP\s+TABLE|DROP\s+COLUMN|RENAME\s+(?:TO|COLUMN)|SET\s+NOT\s+NULL)\b", re.IGNORECASE)


def sins_of(upgrade: str, *, oldest_code: str | None = None) -> list[str]:
    """What the source of an upgrade must not do, in words."""
    own = {name.lower() for name in CREATES.findall(upgrade)}
    sins: list[str] = []
    if "lock_timeout" not in upgrade and "op.execute" in upgrade:
        sins.append("it waits for locks without a limit: begin with SET LOCAL lock_timeout = '5s'")
    sins += [
        f"CREATE INDEX on {table} keeps its writers waiting: use migrations.large.create_index"
        for table in INDEXES.findall(upgrade)
        if table.lower() not in own | SMALL
    ]
    for table, changes in ALTERS.findall(upgrade):
        if table.lower() not in own | SMALL:
            sins += [f"{what} on {table} blocks all other sessions" for what, it in SLOW.items() if it.search(changes)]
    if oldest_code is None and (found := TAKES_AWAY.search(upgrade)):
        words = " ".join(found[0].split())
        sins.append(f"{words} takes away what the previous release may use: say since when it is unused, oldest_code")
    return sins
