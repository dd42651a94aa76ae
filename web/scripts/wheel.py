"""Puts the built dashboard and GraphiQL into the wheel. A wheel without them works; the server then says so at /."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES = {"web/dist": "server/built/dashboard", "web/graphiql/dist": "server/built/graphiql"}


class PagesHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a clone serves them from where they are built, so that a new build is seen at once
        for source, target in PAGES.items():
            if (Path(self.root) / source / "index.html").is_file():
                build_data["force_include"][str(Path(self.root) / source)] = target
