"""Templates and stored registry credentials."""

from dataclasses import field
from datetime import datetime
from typing import Any

from server.novita.models.base import model
from server.novita.models.instance import Env, Tool, Volume, read_envs, read_tools, read_volumes
from server.novita.models.request import Port, envs_to_json
from server.novita.transport.json_reader import InvalidResponse, JsonReader


@model
class RegistryAuth:
    """The response holds clear-text passwords; this type has no field for them."""

    id: str
    name: str
    username: str

    @classmethod
    def read(cls, raw: JsonReader) -> "RegistryAuth":
        return cls(id=raw.required_id("id"), name=raw.text("name"), username=raw.text("username"))


@model
class Template:
    id: str
    name: str
    type: str
    channel: str
    image: str
    image_auth_id: str | None  # called imageAuth in the API, but it is the id of a registry auth
    start_command: str | None = field(repr=False)
    entrypoint: str | None = field(repr=False)
    rootfs_gb: int | None
    ports: tuple[Port, ...]  # unchecked
    problems: tuple[str, ...]  # unreadable parts; templates are written by hand, and one must not fail the whole list
    envs: tuple[Env, ...]
    tools: tuple[Tool, ...]
    volumes: tuple[Volume, ...]
    readme: str = field(repr=False)
    logo: str | None = field(repr=False)
    min_cuda_version: str | None
    created_at: datetime | None

    @classmethod
    def read(cls, raw: JsonReader) -> "Template":
        ports, problems = _ports(raw)
        return cls(
            id=raw.required_id("Id", "id"),
            name=raw.text("name"),
            type=raw.text("type"),
            channel=raw.text("channel"),
            image=raw.text("image"),
            image_auth_id=raw.optional_text("imageAuth"),
            start_command=raw.optional_text("startCommand"),
            entrypoint=raw.optional_text("entrypoint"),
            rootfs_gb=raw.integer("rootfsSize"),
            ports=ports,
            problems=problems,
            envs=read_envs(raw),
            tools=read_tools(raw),
            volumes=read_volumes(raw, "volumes"),
            readme=raw.text("readme"),
            logo=raw.optional_text("logo"),
            min_cuda_version=raw.optional_text("minCudaVersion"),
            created_at=raw.time("createTime"),
        )


def _ports(raw: JsonReader) -> tuple[tuple[Port, ...], tuple[str, ...]]:
    ports: list[Port] = []
    problems: list[str] = []
    for group in raw.objects("ports"):
        kind = group.text("type")
        try:
            ports.extend(Port(number, kind) for number in group.integers("ports"))
        except InvalidResponse:
            problems.append(f"the {kind} ports are not all numbers")
    return tuple(ports), tuple(problems)


@model
class TemplateDraft:
    """The fields of a template to create or update."""

    name: str
    image: str
    rootfs_gb: int
    channel: str = "private"
    type: str = "instance"
    image_auth_id: str | None = None
    start_command: str = field(default="", repr=False)
    entrypoint: str = field(default="", repr=False)
    ports: tuple[Port, ...] = ()
    envs: tuple[Env, ...] = ()
    tools: tuple[Tool, ...] = ()
    volumes: tuple[Volume, ...] = ()
    readme: str = field(default="", repr=False)
    min_cuda_version: str = ""

    def to_json(self) -> dict[str, Any]:
        grouped: dict[str, list[int]] = {}
        for port in self.ports:
            grouped.setdefault(port.type, []).append(port.port)
        return {
            "name": self.name,
            "type": self.type,
            "channel": self.channel,
            "image": self.image,
            "imageAuth": self.image_auth_id or "",
            "startCommand": self.start_command,
            "entrypoint": self.entrypoint,
            "rootfsSize": self.rootfs_gb,
            "ports": [{"type": kind, "ports": numbers} for kind, numbers in grouped.items()],
            "envs": envs_to_json(self.envs),
            "tools": [{"name": tool.name, "port": tool.port, "type": tool.type} for tool in self.tools],
            "volumes": [
                {"type": volume.type, "size": volume.size_gb or 0, "mountPath": volume.mount_path}
                for volume in self.volumes
            ],
            "readme": self.readme,
            "minCudaVersion": self.min_cuda_version,
        }
