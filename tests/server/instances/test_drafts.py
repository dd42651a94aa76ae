"""Validation of drafts, before any provider call."""

from dataclasses import replace
from typing import Any

import pytest

from server.errors import Invalid
from server.instances.drafts import CreateDraft, Port

GOOD = CreateDraft(name="web", product_name="RTX 4090 24GB", image="nginx")
PORTS = tuple(Port(port, "http") for port in range(1, 17))


def problems(**fields: Any) -> list[tuple[str, tuple[str, ...]]]:
    try:
        replace(GOOD, **fields).check()
    except Invalid as invalid:
        return [(problem.code, problem.path) for problem in invalid.problems]
    return []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "n" * 255},
        {"name": "Ünïcode name 机器"},
        {"product_name": "p" * 255},
        {"image": None, "template_id": "107672"},
        {"image": None, "template_id": "my-template"},
        {"image": "i" * 500},
        {"gpu_count": 8},
        {"rootfs_size_gb": 10},
        {"rootfs_size_gb": 1000},
        {"command": "c" * 2047},
        {"env": {f"K{number}": "v" for number in range(100)}},
        {"env": {"K" * 511: "v" * 4095}},
        {"ports": PORTS[:15]},
        {"ports": (Port(65535, "tcp"),)},
        {"labels": {f"l{number}": "" for number in range(64)}},
        {"labels": {"l" * 63: "v" * 255}},
        {"idempotency_key": "k" * 255},
        {"max_hourly_price_e5": 100},
        {"max_hourly_price_e5": 100_000_000},
        {"regions": tuple(f"R-{number}" for number in range(20))},
    ],
)
def test_what_is_just_within_the_limits_is_accepted(fields: dict[str, Any]):
    assert problems(**fields) == []


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"name": ""}, "INVALID_INSTANCE_NAME", "name"),
        ({"name": "  "}, "INVALID_INSTANCE_NAME", "name"),
        ({"name": "n" * 256}, "INVALID_INSTANCE_NAME", "name"),
        ({"name": "two\nlines"}, "INVALID_INSTANCE_NAME", "name"),
        ({"name": "nul\x00"}, "INVALID_INSTANCE_NAME", "name"),
        ({"product_name": " "}, "INVALID_PRODUCT_NAME", "productName"),
        ({"product_name": "p" * 256}, "INVALID_PRODUCT_NAME", "productName"),
        ({"product_name": "nul\x00"}, "INVALID_PRODUCT_NAME", "productName"),
        ({"image": None}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"template_id": "1"}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"image": None, "template_id": ""}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"image": None, "template_id": "0"}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"image": None, "template_id": " 1"}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"image": None, "template_id": "-5"}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"image": None, "template_id": "1\x00"}, "INVALID_TEMPLATE_ID", "templateId"),
        ({"image": " "}, "INVALID_IMAGE", "image"),
        ({"image": "i" * 501}, "INVALID_IMAGE", "image"),
        ({"image": "nul\x00"}, "INVALID_IMAGE", "image"),
        ({"gpu_count": 0}, "INVALID_GPU_COUNT", "gpuCount"),
        ({"gpu_count": 9}, "INVALID_GPU_COUNT", "gpuCount"),
        ({"rootfs_size_gb": 9}, "INVALID_ROOTFS_SIZE", "rootfsSizeGb"),
        ({"rootfs_size_gb": 1001}, "INVALID_ROOTFS_SIZE", "rootfsSizeGb"),
        ({"region": " "}, "INVALID_REGION", "region"),
        ({"region": "nul\x00"}, "INVALID_REGION", "region"),
        ({"regions": ("AS-SGP-02", "")}, "INVALID_REGION", "regions"),
        ({"regions": ("AS-SGP-02", "nul\x00")}, "INVALID_REGION", "regions"),
        ({"regions": ("R",) * 21}, "INVALID_REGION", "regions"),
        ({"max_hourly_price_e5": 0}, "INVALID_MAX_HOURLY_PRICE", "maxHourlyPrice"),
        ({"max_hourly_price_e5": 99}, "INVALID_MAX_HOURLY_PRICE", "maxHourlyPrice"),
        ({"max_hourly_price_e5": 100_000_001}, "INVALID_MAX_HOURLY_PRICE", "maxHourlyPrice"),
        ({"command": "c" * 2048}, "INVALID_COMMAND", "command"),
        ({"command": "nul\x00"}, "INVALID_COMMAND", "command"),
        ({"command": "half a character \ud800"}, "INVALID_COMMAND", "command"),
        ({"idempotency_key": ""}, "INVALID_IDEMPOTENCY_KEY", "idempotencyKey"),
        ({"idempotency_key": "k" * 256}, "INVALID_IDEMPOTENCY_KEY", "idempotencyKey"),
        ({"idempotency_key": "nul\x00"}, "INVALID_IDEMPOTENCY_KEY", "idempotencyKey"),
    ],
)
def test_a_field_beyond_its_limits_is_named_with_its_code(fields: dict[str, Any], code: str, path: str):
    assert problems(**fields) == [(code, ("input", path))]


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"env": {f"K{number}": "" for number in range(101)}}, "INVALID_ENV", ("env",)),
        ({"env": {"": "v"}}, "INVALID_ENV", ("env", "")),
        ({"env": {"A B": "v"}}, "INVALID_ENV", ("env", "A B")),
        ({"env": {"A=B": "v"}}, "INVALID_ENV", ("env", "A=B")),
        ({"env": {"A": "v" * 4096}}, "INVALID_ENV", ("env", "A")),
        ({"env": {"A": "nul\x00"}}, "INVALID_ENV", ("env", "A")),
        ({"env": {"A": "\udfff"}}, "INVALID_ENV", ("env", "A")),
        ({"env": {"K" * 512: "v"}}, "INVALID_ENV", ("env", "K" * 63)),
        ({"ports": PORTS}, "INVALID_PORT", ("ports",)),
        ({"ports": (Port(0, "http"),)}, "INVALID_PORT", ("ports", "0")),
        ({"ports": (Port(80, "http"), Port(65536, "tcp"))}, "INVALID_PORT", ("ports", "1")),
        ({"ports": (Port(2222, "tcp"),)}, "INVALID_PORT", ("ports", "0")),
        ({"ports": (Port(2224, "tcp"),)}, "INVALID_PORT", ("ports", "0")),
        ({"ports": (Port(80, "udp"),)}, "INVALID_PORT", ("ports", "0")),
        ({"ports": (Port(80, "http"), Port(80, "tcp"))}, "INVALID_PORT", ("ports",)),
        ({"labels": {f"l{number}": "" for number in range(65)}}, "INVALID_LABEL", ("labels",)),
        ({"labels": {"": "v"}}, "INVALID_LABEL", ("labels", "")),
        ({"labels": {"l" * 64: "v"}}, "INVALID_LABEL", ("labels", "l" * 63)),
        ({"labels": {"l": "v" * 256}}, "INVALID_LABEL", ("labels", "l")),
        ({"labels": {"l": "\x00"}}, "INVALID_LABEL", ("labels", "l")),
        ({"labels": {"l": "\ud800"}}, "INVALID_LABEL", ("labels", "l")),
    ],
)
def test_an_item_beyond_its_limits_is_reported_with_its_path(fields: dict[str, Any], code: str, path: tuple[str, ...]):
    assert problems(**fields) == [(code, ("input", *path))]


def test_all_problems_are_reported_together():
    assert problems(
        name="",
        product_name="",
        image=None,
        gpu_count=99,
        rootfs_size_gb=1,
        region="",
        max_hourly_price_e5=-1,
        command="c" * 3000,
        idempotency_key="",
        env={"": ""},
        ports=(Port(0, "x"),),
        labels={"": ""},
    ) == [
        ("INVALID_INSTANCE_NAME", ("input", "name")),
        ("INVALID_PRODUCT_NAME", ("input", "productName")),
        ("INVALID_TEMPLATE_ID", ("input", "templateId")),
        ("INVALID_GPU_COUNT", ("input", "gpuCount")),
        ("INVALID_ROOTFS_SIZE", ("input", "rootfsSizeGb")),
        ("INVALID_REGION", ("input", "region")),
        ("INVALID_MAX_HOURLY_PRICE", ("input", "maxHourlyPrice")),
        ("INVALID_COMMAND", ("input", "command")),
        ("INVALID_IDEMPOTENCY_KEY", ("input", "idempotencyKey")),
        ("INVALID_ENV", ("input", "env", "")),
        ("INVALID_PORT", ("input", "ports", "0")),
        ("INVALID_LABEL", ("input", "labels", "")),
    ]
