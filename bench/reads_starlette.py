"""The same rows by hand: Starlette, asyncpg and orjson, without GraphQL.

    python -m bench.reads_starlette <database> <project> <token>

It takes the bodies that the GraphQL servers take, but looks only at the variables.
"""

import asyncio
import sys
from base64 import urlsafe_b64decode
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

COLUMNS = (
    "SELECT id, name, status, status_since, version, product_name, gpu_count, region, image, created_at, updated_at,"
    " price_per_hour_e5 FROM instance WHERE project_id = $1"
)
NEWEST = " AND status <> 'DELETED' ORDER BY created_at DESC, id DESC LIMIT 50"
PAGE = COLUMNS + NEWEST
AFTER = f"{COLUMNS} AND (created_at, id) < ($2, $3) {NEWEST}"
FILTER = f"{COLUMNS} AND status = ANY($2) AND created_at > $3 {NEWEST}"
REGION = f"{COLUMNS} AND region = ANY($2) {NEWEST}"
ONE = f"{COLUMNS} AND id = $2"


def shown(row: Any) -> dict[str, Any]:
    price, is_billed = row["price_per_hour_e5"], row["status"] in ("READY", "FAILED")
    return {
        "id": f"inst_{row['id'].hex}",
        "name": row["name"],
        "status": row["status"],
        "statusSince": row["status_since"],
        "version": row["version"],
        "productName": row["product_name"],
        "gpuCount": row["gpu_count"],
        "region": row["region"],
        "image": row["image"],
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "pricePerHour": {"amountMicros": price * 10, "currency": "USD"} if is_billed else None,
    }


async def main(database: str, project: str, token: str) -> None:
    project_id = UUID(project)
    pool = await asyncpg.create_pool(database, min_size=1, max_size=10)

    async def answer(request: Request) -> Response:
        if request.headers["authorization"] != f"Bearer {token}":
            return Response(status_code=401)
        variables = orjson.loads(await request.body()).get("variables") or {}
        if "id" in variables:
            row = await pool.fetchrow(ONE, project_id, UUID(variables["id"][5:]))
            data: dict[str, Any] = {"instance": None if row is None else shown(row)}
        else:
            data = {"instances": {"nodes": [shown(row) for row in await page(variables)]}}
        return Response(orjson.dumps({"data": data}), media_type="application/json")

    async def page(variables: dict[str, Any]) -> list[Any]:
        if variables.get("after") is not None:
            _, moment, id = orjson.loads(urlsafe_b64decode(variables["after"]))
            return await pool.fetch(AFTER, project_id, datetime.fromisoformat(moment), UUID(id))
        if "since" in variables:
            since = datetime.fromisoformat(variables["since"])
            return await pool.fetch(FILTER, project_id, ["READY", "EXITED"], since)
        if "region" in variables:
            return await pool.fetch(REGION, project_id, [variables["region"]])
        return await pool.fetch(PAGE, project_id)

    app = Starlette(routes=[Route("/graphql", answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.05)
    print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/graphql", flush=True)
    await serving


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
