"""With the database away, every address that needs it says so: nothing is a fault of ours, and no cookie is lost."""

from typing import Any

from structlog.testing import capture_logs

from tests.schema.test_error_masking import Breakable
from tests.support.api_server import serving
from tests.support.databases import DatabaseMaker
from tests.support.world import a_simulator

ORIGIN = "http://127.0.0.1:9"
TOKEN = {"authorization": "Bearer pl_unknown"}
SESSION = {"cookie": f"pilotlight_session=pls_{'x' * 43}", "origin": ORIGIN}


async def test_requests_that_need_the_database_are_to_be_sent_again(new_database: DatabaseMaker, server_url: str):
    url = await new_database.migrated()
    settings: dict[str, Any] = {
        "host": "0.0.0.0",  # so that metrics need a token
        "public_url": ORIGIN,
        "oidc_issuer": ORIGIN,
        "oidc_client_id": "pilotlight",
        "oidc_groups": ("ml=default:READER",),
    }
    async with a_simulator() as simulator, serving(url, simulator, **settings) as server:
        breakable = Breakable(server, url, server_url, "")
        await breakable.shut(True)
        with capture_logs() as logs:
            for method, path, headers in (
                ("GET", "/metrics", TOKEN),
                ("POST", "/logout", SESSION),
                ("POST", "/mcp", TOKEN),
                ("POST", "/graphql", TOKEN),
            ):
                async with server.http.request(method, f"http://{server.address}{path}", headers=headers) as response:
                    assert (path, response.status, "set-cookie" in response.headers) == (path, 503, False)
        await breakable.shut(False)

    assert [each for each in logs if each["log_level"] in ("error", "critical")] == []
