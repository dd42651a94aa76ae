"""An SSH server on loopback that lets one password in, runs commands and serves files of one folder.

Run in an environment of its own, with asyncssh. Arguments: password, folder and port (0: any). Prints the port.
"""

import asyncio
import sys

import asyncssh


class Door(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("root", sys.argv[1])


class Files(asyncssh.SFTPServer):
    """Ends with an exit status, as OpenSSH's does; without one, scp takes the copy for failed."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes]) -> None:
        super().__init__(channel, chroot=sys.argv[2].encode())

    def exit(self) -> None:
        self.channel.exit(0)


async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    shell = await asyncio.create_subprocess_shell(
        process.command or "true",
        cwd=sys.argv[2],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await shell.communicate()
    process.stdout.write(printed)
    process.stderr.write(said)
    process.exit(shell.returncode or 0)


async def main() -> None:
    server = await asyncssh.listen(
        "127.0.0.1",
        int(sys.argv[3]),
        server_factory=Door,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        process_factory=run,
        encoding=None,
        sftp_factory=Files,
        allow_scp=True,
    )
    sys.stdout.write(f"{server.get_port()}\n")
    sys.stdout.flush()
    await server.wait_closed()


asyncio.run(main())
