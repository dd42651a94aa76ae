"""The world that these tests live in."""

from tests.world import world

__all__ = ["world"]
