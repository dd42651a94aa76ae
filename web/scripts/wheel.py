"""Adds the built dashboard and GraphiQL to the wheel. Without them the server shows a placeholder page at /."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES = {"web/dist": "server/built/dashboard", "web/graphiql/dist": "server/built/graphiql"}


class PagesHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a clone serves the build folders directly, so that a new build takes effect at once
        for source, target in PAGES.items():
            if (Path(self.root) / source / "index.html").is_file():
                build_data["force_include"][str(Path(self.root) / source)] = target
