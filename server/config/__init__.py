"""Every setting, read once from the environment and checked together; one module per topic."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from server.config.database import DatabaseSettings
from server.config.http import GraphQLSettings, HttpSettings
from server.config.jobs import InstanceSettings, JobSettings, LifetimeSettings, WebhookSettings
from server.config.login import LoginSettings
from server.config.observe import ObserveSettings
from server.config.provider import ProviderSettings
from server.errors import StartupProblem


class Settings(
    ObserveSettings,
    WebhookSettings,
    JobSettings,
    LifetimeSettings,
    InstanceSettings,
    GraphQLSettings,
    HttpSettings,
    LoginSettings,
    DatabaseSettings,
    ProviderSettings,
):
    """One frozen value, created once by the command line and passed down."""

    @classmethod
    def from_env(cls, **overrides: Any) -> "Settings":
        """Read and check all settings; one error message lists every problem."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            lines = sorted({_line(problem) for problem in error.errors(include_url=False)})
            raise StartupProblem("these settings are not right:\n" + "\n".join(lines)) from None


def misspelled(variables: Iterable[str] | None = None) -> dict[str, str]:
    """Variables of the environment that are no settings but nearly spelled like one, with that one: `JOB_LEESE` is
    surely a mistake."""
    variables = os.environ if variables is None else variables
    known = [name.upper() for name in Settings.model_fields]
    close = {name: get_close_matches(name, known, n=1, cutoff=0.85) for name in variables if name not in known}
    return {name: found[0] for name, found in close.items() if found and "_" in found[0]}


def _line(problem: Any) -> str:
    field = str(problem["loc"][0])
    reason = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    # An address with an @ usually contains a password.
    is_secret = "SecretStr" in str(Settings.model_fields[field].annotation) or "@" in str(problem["input"])
    value = "" if is_secret else f" (it is {str(problem['input'])!r})"
    return f"  {field.upper()}: {reason}{value}"
