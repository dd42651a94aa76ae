"""OpenID providers on loopback: a real one from npm, and one that signs whatever a test wants."""

import asyncio
import fcntl
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

HERE = Path(__file__).parent


def _install() -> None:
    """Once; test processes that need it at the same time wait for each other."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    installed = HERE / "node_modules/.package-lock.json"
    with (HERE / ".installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if installed.exists() and installed.stat().st_mtime >= (HERE / "package-lock.json").stat().st_mtime:
            return
        command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stdout + done.stderr


@asynccontextmanager
async def node_provider(redirect_uri: str, client_secret: str) -> AsyncIterator[str]:
    """The issuer of `oidc-provider`, a certified implementation."""
    await asyncio.to_thread(_install)
    process = await asyncio.create_subprocess_exec(
        "node",
        str(HERE / "provider.mjs"),
        redirect_uri,
        client_secret,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        yield json.loads(await asyncio.wait_for(process.stdout.readline(), 60))["issuer"]
    finally:
        process.terminate()
        await process.wait()


class Forger:
    """Answers every code with the ID token that `claims` and `sign` make."""

    def __init__(self) -> None:
        self.issuer = ""
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.id_token = ""
        self.redeemed: list[dict[str, str]] = []
        self.lacks = ""  # what its configuration leaves out

    def sign(self, claims: dict[str, Any], *, alg: str = "RS256", key: Any = None, kid: str = "one") -> None:
        self.id_token = jwt.encode(claims, self.key if key is None else key, algorithm=alg, headers={"kid": kid})

    async def _metadata(self, _: web.Request) -> web.Response:
        names = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "jwks"}
        places = {name: f"{self.issuer}/{at}" for name, at in names.items() if name != self.lacks}
        return web.json_response({"issuer": self.issuer, **places})

    async def _jwks(self, request: web.Request) -> web.StreamResponse:
        """In pieces: large sets of keys arrive so."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        body = json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}).encode()
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (body[:100], body[100:]):
            await response.write(part)
            await asyncio.sleep(0.05)
        await response.write_eof()
        return response

    async def _token(self, request: web.Request) -> web.Response:
        self.redeemed.append({name: str(value) for name, value in (await request.post()).items()})
        return web.json_response({"access_token": "a", "token_type": "Bearer", "id_token": self.id_token})


@asynccontextmanager
async def forger() -> AsyncIterator[Forger]:
    forging = Forger()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", forging._metadata)
    app.router.add_get("/jwks", forging._jwks)
    app.router.add_post("/token", forging._token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    forging.issuer = f"http://{host}:{port}"
    try:
        yield forging
    finally:
        await runner.cleanup()
