/**
 * Receive what Pilotlight sends, and believe only what it has signed.
 *
 *     npm ci && npm run build
 *     WEBHOOK_SECRET=whsec_... node dist/webhooks.js 9000
 *
 * The secret is what the mutation rotateWebhookSecret shows. Give http://127.0.0.1:9000/ as webhookUrl.
 */
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";

import { Webhook, WebhookVerificationError } from "standardwebhooks";

type Message = { type: string; data: { instanceId?: string; status?: string | null } };

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");
const seen = new Set<string>(); // in your database, if what you do with a message may not be done twice

createServer(async (request, response) => {
  const body = await buffer(request); // the raw body: JSON that was parsed and serialised again has another signature
  try {
    const message = webhook.verify(body, request.headers as Record<string, string>) as Message;
    // A message may come again with the same id, for example when our response was lost.
    const id = String(request.headers["webhook-id"]);
    if (!seen.has(id)) {
      seen.add(id);
      console.log(message.type, message.data.instanceId, message.data.status);
    }
    response.writeHead(204).end(); // within 10 s: do the work afterwards
  } catch (why) {
    if (!(why instanceof WebhookVerificationError)) throw why;
    console.log(`not believed: ${why.message}`);
    response.writeHead(401).end();
  }
}).listen(Number(process.argv[2] ?? 9000), "127.0.0.1");
