"""Stored credentials of image registries, without the credential."""

from server.novita.fields import Fields
from server.novita.wire.value import value


@value
class RegistryAuth:
    """The list answers with clear-text passwords; they stop at this type, which has nowhere to put one."""

    id: str
    name: str
    username: str

    @classmethod
    def read(cls, raw: Fields) -> "RegistryAuth":
        return cls(id=raw.identity("id"), name=raw.text("name"), username=raw.text("username"))
