"""Templates: recipes that are copied into a create request."""

from dataclasses import field
from datetime import datetime
from typing import Any

from server.novita.fields import Fields, Unreadable
from server.novita.wire.instance import Env, Tool, Volume, read_envs, read_tools, read_volumes
from server.novita.wire.request import Port, envs_to_json
from server.novita.wire.value import value


@value
class Template:
    id: str
    name: str
    type: str
    channel: str
    image: str
    image_auth_id: str | None  # the wire calls it imageAuth; it is the id of a registry auth all the same
    start_command: str | None = field(repr=False)
    entrypoint: str | None = field(repr=False)
    rootfs_gb: int | None
    ports: tuple[Port, ...]  # as written, sensible or not
    problems: tuple[str, ...]  # what can't even be read; a template is written by hand, and one must not hide the rest
    envs: tuple[Env, ...]
    tools: tuple[Tool, ...]
    volumes: tuple[Volume, ...]
    readme: str = field(repr=False)
    logo: str | None = field(repr=False)
    min_cuda_version: str | None
    created_at: datetime | None

    @classmethod
    def read(cls, raw: Fields) -> "Template":
        ports, problems = _ports(raw)
        return cls(
            id=raw.identity("Id", "id"),
            name=raw.text("name"),
            type=raw.text("type"),
            channel=raw.text("channel"),
            image=raw.text("image"),
            image_auth_id=raw.maybe("imageAuth"),
            start_command=raw.maybe("startCommand"),
            entrypoint=raw.maybe("entrypoint"),
            rootfs_gb=raw.integer("rootfsSize"),
            ports=ports,
            problems=problems,
            envs=read_envs(raw),
            tools=read_tools(raw),
            volumes=read_volumes(raw, "volumes"),
            readme=raw.text("readme"),
            logo=raw.maybe("logo"),
            min_cuda_version=raw.maybe("minCudaVersion"),
            created_at=raw.time("createTime"),
        )


def _ports(raw: Fields) -> tuple[tuple[Port, ...], tuple[str, ...]]:
    ports: list[Port] = []
    problems: list[str] = []
    for group in raw.objects("ports"):
        kind = group.text("type")
        try:
            ports.extend(Port(number, kind) for number in group.integers("ports"))
        except Unreadable:
            problems.append(f"the {kind} ports are not all numbers")
    return tuple(ports), tuple(problems)


@value
class TemplateDraft:
    """What a template is made from."""

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
