"""Builds wheels, source archives, bills of materials and checksums of server and client from a commit, and checks them.

    python deploy/release/build.py                 of HEAD, into dist/
    python deploy/release/build.py --once          without the second build that shows that it is reproducible

Everything is built in a fresh clone, so nothing that is not committed gets in. The wheel is then installed into an
empty environment, and `pilotlight up` of it has to serve the dashboard; the client's wheel, in an environment of its
own, has to read from it.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
UV = str(BIN / "uv")
CYCLONEDX = "cyclonedx-bom==7.5.0"
START_TIMEOUT = 120.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="do not build a second time to compare")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pilotlight-release-") as folder:
        built = build(Path(folder) / "one")
        if not options.once:
            compare(built, build(Path(folder) / "two"))
        wheels = {file.name.partition("-")[0]: file for file in built if file.suffix == ".whl"}
        try_out(wheels["pilotlight"], wheels["pilotlight_client"], Path(folder))
        collect(built, options.output)


def build(clone: Path) -> list[Path]:
    """The files of the release, built in a clone of HEAD."""
    run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    run("git", "checkout", "--quiet", commit, cwd=clone)
    check_schema(clone / "schema")
    # Times in the archives are those of the commit, so that the same commit gives the same bytes.
    environment = {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct", cwd=clone).strip()}
    run(sys.executable, "-m", "server.cli.build_pages", cwd=clone, env={"PYTHONPATH": str(clone)})
    output = clone / "dist"
    for project in (clone, clone / "client"):
        hatchling = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(output))
        run(*hatchling, cwd=project, env=environment)
    version = re.search(r'(?m)^version = "(.+)"$', (clone / "pyproject.toml").read_text())
    if version is None:
        raise SystemExit("pyproject.toml has no version")
    write_sboms(clone, output, version[1])
    return sorted(file for file in output.iterdir() if file.is_file())


def check_schema(folder: Path) -> None:
    """Later changes are compared with released.graphql: it has to be the schema of this release."""
    if (folder / "schema.graphql").read_bytes() != (folder / "released.graphql").read_bytes():
        raise SystemExit("released.graphql is not the schema of this commit: run `make schema-release` and commit it")


def write_sboms(clone: Path, output: Path, version: str) -> None:
    """What the server is made of, by its lock file, and what the pages are, by theirs; CycloneDX."""
    python = output / f"pilotlight-{version}.python.cdx.json"
    command = (UV, "tool", "run", "--from", CYCLONEDX, "cyclonedx-py", "requirements", "requirements.lock")
    run(*command, "--output-reproducible", "--of", "JSON", "-o", str(python), cwd=clone)
    pages = run("npm", "sbom", "--sbom-format", "cyclonedx", "--omit", "dev", cwd=clone / "web")
    content = json.loads(pages)
    # These two differ each time; without them the file depends on the lock file alone.
    content.pop("serialNumber", None)
    content["metadata"].pop("timestamp", None)
    (output / f"pilotlight-{version}.pages.cdx.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def compare(one: list[Path], two: list[Path]) -> None:
    different = [(file, other) for file, other in zip(one, two, strict=True) if digest(file) != digest(other)]
    if different:
        lines = [f"{file.name}: {', '.join(differing_members(file, other))}" for file, other in different]
        raise SystemExit("\n".join(["a second build gave other bytes:", *lines]))
    print(f"reproducible: {len(one)} files have the same bytes in two builds")


def differing_members(one: Path, two: Path) -> list[str]:
    """The names of what two archives do not have in common, at most twenty."""
    before, after = members(one), members(two)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))[:20]


def members(file: Path) -> dict[str, bytes]:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    if file.suffix != ".gz":
        return {}
    with tarfile.open(file) as archive:
        opened = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: content.read() for name, content in opened.items() if content is not None}


def try_out(wheel: Path, client: Path, folder: Path) -> None:
    """Install each wheel alone; look at what `pilotlight up` serves, and read from it with the client."""
    server, ready = environment_with(wheel, folder / "server"), folder / "ready.json"
    command = [
        str(server / "pilotlight"),
        "up",
        "--port",
        "0",
        "--home",
        str(folder / "home"),
        "--ready-file",
        str(ready),
    ]
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=kept, stdout=log, stderr=log)
    try:
        address = wait_until_ready(process, ready)
        page = urllib.request.urlopen(address, timeout=10).read().decode()
        script = re.search(r'src="(/assets/[^"]+\.js)"', page)
        if script is None:
            raise SystemExit("the installed wheel serves no dashboard")
        urllib.request.urlopen(address + script[1], timeout=10).read()
        print(f"the wheel alone: {wheel.name} serves the dashboard")
        alone = environment_with(client, folder / "client")
        reads = "from pilotlight_client import Pilotlight\nwith Pilotlight() as client: print(len(client.products()))"
        products = run(str(alone / "python"), "-c", reads, cwd=folder, env={"PILOTLIGHT_HOME": str(folder / "home")})
        print(f"the client alone: {client.name} lists {products.strip()} products")
    except BaseException:
        sys.stderr.write((folder / "up.log").read_text()[-3000:])
        raise
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def environment_with(wheel: Path, environment: Path) -> Path:
    """The folder of programs of a new environment."""
    run(UV, "venv", "--quiet", "--python", sys.executable, str(environment))
    run(UV, "pip", "install", "--quiet", "--python", str(environment / "bin/python"), str(wheel))
    return environment / "bin"


def wait_until_ready(process: subprocess.Popen[bytes], ready: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("`pilotlight up` of the installed wheel did not start")
        time.sleep(0.2)
    return str(json.loads(ready.read_text())["graphqlUrl"]).removesuffix("/graphql")


def collect(built: list[Path], output: Path) -> None:
    output.mkdir(exist_ok=True)
    for file in built:
        shutil.copy(file, output / file.name)
    lines = [f"{digest(file)}  {file.name}\n" for file in built]
    (output / "SHA256SUMS").write_text("".join(lines))
    sys.stdout.write("".join(lines))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
