"""What log lines must never contain."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
import structlog
from asyncpg import DataError
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from server.db.database import Database
from server.observe import logs
from tests.support.log_config import kept_log_config

SECRET = "hunter" + "2"  # in two parts: a traceback shows the lines of this file, too


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What is configured here is gone afterwards."""
    with kept_log_config():
        yield


@pytest.mark.parametrize("format", ["json", "text"])
async def test_a_row_that_the_database_refused_is_not_in_the_log(
    database: Database, capsys: pytest.CaptureFixture[str], format: str
):
    logs.configure(level="info", format=format)
    insert = text("INSERT INTO job (kind, args, priority, run_at, due_at) VALUES (:kind, '{}', 0, now(), :due)")
    with pytest.raises(IntegrityError) as refused:
        async with database.write() as session:
            await session.execute(insert, {"kind": SECRET, "due": None})
    driver_error = getattr(refused.value.orig, "__cause__", None)
    assert SECRET in str(driver_error)  # and the log has its text

    structlog.get_logger("of this test").error("refused", exc_info=refused.value)

    said = capsys.readouterr().err
    assert said.count("NotNullViolation") >= 2
    assert SECRET not in said


@pytest.mark.parametrize("format", ["json", "text"])
async def test_a_value_that_the_driver_refused_is_not_in_the_log(
    database: Database, capsys: pytest.CaptureFixture[str], format: str
):
    logs.configure(level="info", format=format)
    with pytest.raises(DataError) as refused:
        await database.raw.fetch("SELECT $1::int", SECRET)
    assert SECRET in str(refused.value)

    structlog.get_logger("of this test").error("refused", exc_info=refused.value)

    said = capsys.readouterr().err
    assert "invalid input for query argument" in said
    assert SECRET not in said


def test_ids_are_shown_as_callers_see_them(capsys: pytest.CaptureFixture[str]):
    logs.configure(level="info", format="json")
    id = uuid4()

    structlog.get_logger("of this test").info("told", instance_id=id, token_id=id, delivery_id=id, operation_id=None)

    line = json.loads(capsys.readouterr().err)
    shown = {name: line.get(name) for name in ("instance_id", "token_id", "delivery_id", "operation_id", "trace_id")}
    assert shown == {
        "instance_id": f"inst_{id.hex}",
        "token_id": f"tok_{id.hex}",
        "delivery_id": f"dlv_{id.hex}",
        "operation_id": None,
        "trace_id": None,
    }
