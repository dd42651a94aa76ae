"""On which PostgreSQL server the tests run, and what they say when it can't be used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import Kind, UnusableServer, kind_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({}, Kind.EMBEDDED),
        ({"TEST_DATABASE": ""}, Kind.EMBEDDED),
        ({"TEST_DATABASE": "embedded"}, Kind.EMBEDDED),
        ({"TEST_DATABASE": "container"}, Kind.CONTAINER),
        ({"TEST_DATABASE_URL": "postgresql://x"}, Kind.GIVEN),
        ({"TEST_DATABASE_URL": "postgresql://x", "TEST_DATABASE": "container"}, Kind.GIVEN),
    ],
)
def test_a_url_wins_over_a_name_and_the_default_is_embedded(environ: dict[str, str], kind: Kind):
    assert kind_of(environ) is kind


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UnusableServer) as caught:
        kind_of({"TEST_DATABASE": "mysql"})

    assert str(caught.value) == "TEST_DATABASE is 'mysql'; it can be 'embedded' (the default) or 'container'"


def test_a_container_without_docker_ends_the_run_with_one_sentence():
    """In a process of its own, which is pointed at a socket that no Docker engine listens on."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TEST_DATABASE", "PYTEST"))}
    environ |= {"TEST_DATABASE": "container", "DOCKER_HOST": "unix:///nonexistent/docker.sock"}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/server/test_ssrf.py"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "passed" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert [line.partition(" can run ")[0] for line in lines] == [
        "ERROR: TEST_DATABASE=container needs a Docker engine that"
    ]
    assert lines[0].endswith("Start Docker, or run without TEST_DATABASE to use the embedded server.")
