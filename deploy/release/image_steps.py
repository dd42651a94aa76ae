"""Executes the steps of the Dockerfile without Docker, and starts what they make: `make image-steps`.

Each COPY and RUN of each stage is executed, in a folder that stands for the image and from a clone of HEAD. Then
`pilotlight up` has to pass the image's own health check. Not shown: the base images, the user, what Docker does itself.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALLED = "/opt/pilotlight"  # in every stage at the same place, because programs there name it
START_TIMEOUT = 120.0  # seconds


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pilotlight-image-") as folder:
        context = Path(folder) / "context"
        run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(context))
        stages: dict[str, Stage] = {}
        for line in (context / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "FROM":
                name = rest.partition(" AS ")[2] or "image"
                stages[name] = Stage(Path(folder), name)
            elif word and not word.startswith("#"):
                list(stages.values())[-1].execute(word, rest.strip(), context, stages)
        stages["image"].try_out()


class Stage:
    """One stage of the build; its absolute paths lie below a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._workdir = "/"
        self._env: dict[str, str] = {}
        self._health: list[str] = []
        self._python = folder / "python"  # stands for the one of the base image

    def place(self, path: str) -> Path:
        """Where a path of the image lies."""
        whole = path if path.startswith("/") else f"{self._workdir.rstrip('/')}/{path}"
        base = self._folder / ("shared" if whole.startswith(INSTALLED) else self._name)
        return Path(f"{base}{os.path.normpath(whole)}")

    def execute(self, word: str, rest: str, context: Path, stages: "dict[str, Stage]") -> None:
        match word:
            case "WORKDIR":
                self._workdir = rest
                self.place("").mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(shlex.split(rest), context, stages)
            case "RUN":
                self._run(rest)
            case "ENV":
                pairs = [pair.split("=", 1) for pair in shlex.split(rest)]
                self._env |= {name: self._mapped(value) for name, value in pairs}
            case "HEALTHCHECK":
                self._health = json.loads(rest.partition("CMD ")[2])
            case "USER" | "EXPOSE" | "ENTRYPOINT" | "CMD":
                pass
            case _:
                raise SystemExit(f"{word} is not known here")

    def _copy(self, words: list[str], context: Path, stages: "dict[str, Stage]") -> None:
        source = next((word.partition("=")[2] for word in words if word.startswith("--from=")), None)
        *names, target = [word for word in words if not word.startswith("--")]
        into = self.place(target)
        for name in names:
            found = stages[source].place(name) if source else context / name
            if found == into:
                continue
            is_content = found.is_dir()  # as Docker does it: of a folder, the content is copied
            to = into / found.name if not is_content and (target.endswith("/") or len(names) > 1) else into
            to.parent.mkdir(parents=True, exist_ok=True)
            if is_content:
                shutil.copytree(found, to, dirs_exist_ok=True)
            else:
                shutil.copy(found, to)

    def _run(self, command: str) -> None:
        if command.startswith("useradd "):
            print(f"not executed: {command}")
            return
        if not self._python.exists():
            uv = str(Path(sys.executable).parent / "uv")
            run(uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(self._python))
        began = time.monotonic()
        run("sh", "-ec", self._mapped(command), cwd=self.place(""), env={"PATH": self._path()})
        print(f"{self._name}: {command} ({time.monotonic() - began:.0f} s)")

    def _mapped(self, text: str) -> str:
        return re.sub(r"(?<![\w./])/(opt|var)/[\w./-]+", lambda path: str(self.place(path[0])), text)

    def _path(self) -> str:
        return f"{self._python}/bin:{os.environ['PATH']}"

    def try_out(self) -> None:
        """`pilotlight up` of the image, until its health check is content."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = {**self._env, "HOST": "127.0.0.1", "PORT": str(port)}
        env["PATH"] = env["PATH"].replace("$PATH", os.environ["PATH"])
        said = self._folder / "up.log"
        with said.open("w") as log:
            process = subprocess.Popen(["pilotlight", "up"], env=env, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while subprocess.run(self._health, env=env, capture_output=True).returncode:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"`pilotlight up` does not pass the health check:\n{said.read_text()[-2000:]}")
                time.sleep(0.5)
            print("the image's `pilotlight up` passes its health check")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
