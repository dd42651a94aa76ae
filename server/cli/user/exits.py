"""What an error becomes: a sentence on standard error and an exit code."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pilotlight_client import Pilotlight

DONE, REFUSED, USAGE, FAILED, TIMED_OUT, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

# Codes of requests that were not executed because the server or the token was not usable; all others are refusals.
UNREACHABLE_CODES = {
    "INTERNAL",
    "RATE_LIMITED",
    "REQUEST_TIMEOUT",
    "RESUME",
    "TIMEOUT",
    "TOO_MANY_CONNECTIONS",
    "TOO_MANY_OPERATIONS",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNKNOWN_HOST",
}


def exit_code(code: str) -> int:
    """The exit code for a server's error code."""
    return UNREACHABLE if code in UNREACHABLE_CODES else REFUSED


def fail(message: str, code: int) -> typer.Exit:
    """Say it; raise what is returned."""
    typer.echo(f"pilotlight: {message}", err=True)
    return typer.Exit(code)


@contextmanager
def connected() -> "Generator[Pilotlight]":
    """A client of the server that the environment, the context or this folder leads to; errors become exit codes."""
    from pilotlight_client import (
        NotConfigured,
        NotFound,
        OperationFailed,
        Pilotlight,
        Refused,
        RequestFailed,
        Unreachable,
    )

    try:
        with Pilotlight(retry_for=_retry_for()) as client:
            yield client
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except NotConfigured as problem:
        raise fail(str(problem), UNREACHABLE) from None
    except Unreachable as problem:
        raise fail(
            f"{problem}\n  Check that the server runs, and which one is meant: `pilotlight context ls`.", UNREACHABLE
        ) from None
    except RequestFailed as failed:
        from server.error_codes import help_of

        typer.echo(f"pilotlight: {failed}", err=True)
        if remedy := help_of(failed.code):
            typer.echo(f"  {remedy}", err=True)
        raise typer.Exit(exit_code(failed.code)) from None
    except NotFound as missing:
        raise fail(str(missing), REFUSED) from None
    except Refused as refused:
        for error in refused.errors:
            where = f" ({'.'.join(error.path)})" if error.path else ""
            typer.echo(f"pilotlight: {error.code}: {error.message}{where}", err=True)
            if error.help:
                typer.echo(f"  {error.help}", err=True)
        raise typer.Exit(REFUSED) from None
    except OperationFailed as ended:
        error = ended.operation.error
        typer.echo(f"pilotlight: {ended}", err=True)
        if error is not None and error.help:
            typer.echo(f"  {error.help}", err=True)
        raise typer.Exit(FAILED) from None
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; Python must not try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(DONE) from None


def _retry_for() -> float:
    text = os.environ.get("PILOTLIGHT_RETRY_FOR", "20")
    try:
        return float(text)
    except ValueError:
        raise fail(f"PILOTLIGHT_RETRY_FOR is {text!r}, but has to be a number of seconds", USAGE) from None
