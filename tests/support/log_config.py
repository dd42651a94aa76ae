"""Keeps the configuration of logging as it is, around a command or a test that configures it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def kept_log_config() -> Iterator[None]:
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**configured)
