"""Settings of logs and traces, and of building the web pages."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from server.config.types import SettingsGroup


def _collector_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http or https address, such as http://127.0.0.1:4318")
    if parts.username or parts.password:
        raise ValueError("must not contain a password: use OTEL_EXPORTER_OTLP_HEADERS")
    return value.rstrip("/")


class ObserveSettings(SettingsGroup):
    otel_exporter_otlp_endpoint: Annotated[str, AfterValidator(_collector_url)] | None = Field(
        default=None, description="Collector of OpenTelemetry traces, over OTLP/HTTP. Without one, no traces are made."
    )
    otel_service_name: str = Field(default="pilotlight", min_length=1, description="service.name of traces.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Minimum log level.")
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="json for machines, text for people; auto is text on a terminal."
    )
    build_pages: bool = Field(
        default=False,
        description="Whether `up` in a clone rebuilds dashboard and GraphiQL in the background when their sources "
        "have changed; `make up` sets it.",
    )
