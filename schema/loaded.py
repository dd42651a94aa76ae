"""Fields whose values come from a loader, declared so that a whole list of objects is read at once."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strawberry.dataloader import DataLoader

from schema.context import Info
from schema.loaders import Loaders

LOADED = "loaded"  # where a field's metadata has it


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """`make` turns what the loader has for an object's key into the value; a key of None has the value None.

    `loader` also gets the field's arguments. The field's resolver calls `load`; a compiled selection calls the loader
    once for all objects. `is_shared`: other fields show other parts of the same, which is read once for all of them.
    """

    loader: Callable[..., DataLoader[Any, Any]]
    key: Callable[[Any], Any]
    make: Callable[[Any], Any]
    is_shared: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        return {LOADED: self}

    async def load(self, source: object, info: Info, **arguments: Any) -> Any:
        key = self.key(source)
        if key is None:
            return None
        # Shielded: if a field that waits for the same key is cancelled because of another's error, this one goes on.
        return self.make(await asyncio.shield(self.loader(info.context.loaders, **arguments).load(key)))

    async def load_many(self, keys: list[Any], loaders: Loaders, arguments: dict[str, Any]) -> list[Any]:
        """The values of these keys, with the keys of other callers at this moment."""
        loader = self.loader(loaders, **arguments)
        asked = [key for key in dict.fromkeys(keys) if key is not None]
        found = dict(zip(asked, map(self.make, await asyncio.shield(loader.load_many(asked))), strict=True))
        return [None if key is None else found[key] for key in keys]

    async def load_all(self, keys: list[Any], loaders: Loaders, arguments: dict[str, Any]) -> list[Any]:
        """The values of these keys, which are all of the request: no future for each is needed.

        A read that failed is not repeated by `load`.
        """
        loader = self.loader(loaders, **arguments)
        asked = [key for key in dict.fromkeys(keys) if key is not None]
        try:
            found = dict(zip(asked, map(self.make, await loader.load_fn(asked)), strict=True)) if asked else {}
        except Exception as error:
            if loader.cache:
                for key in asked:
                    failed = loader.loop.create_future()
                    failed.set_exception(error)
                    failed.exception()  # marks it as retrieved: no caller may be left to do it
                    loader.cache_map.set(key, failed)
            raise
        return [None if key is None else found[key] for key in keys]
