"""Receive what Pilotlight sends, and believe only what it has signed.

    pip install aiohttp standardwebhooks
    WEBHOOK_SECRET=whsec_... python receive_webhooks.py 9000

The secret is what the mutation rotateWebhookSecret shows. Give http://127.0.0.1:9000/ as webhookUrl.
"""

import os
import sys

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

WEBHOOK = Webhook(os.environ["WEBHOOK_SECRET"])
SEEN: set[str] = set()  # in your database, if what you do with a message may not be done twice


async def receive(request: web.Request) -> web.Response:
    body = await request.read()  # the raw body: JSON that was parsed and serialised again has another signature
    try:
        message = WEBHOOK.verify(body, dict(request.headers))
    except WebhookVerificationError as why:
        print(f"not believed: {why}", flush=True)
        return web.Response(status=401)
    # A message may come again with the same id, for example when our response was lost.
    if (id := request.headers["webhook-id"]) not in SEEN:
        SEEN.add(id)
        event = message["data"]
        print(message["type"], event.get("instanceId"), event.get("status"), flush=True)
    return web.Response(status=204)  # within 10 s: do the work afterwards


if __name__ == "__main__":
    app = web.Application(client_max_size=128 * 1024)  # a message has at most 64 KiB
    app.router.add_post("/", receive)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
