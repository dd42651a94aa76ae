/**
 * Watch every change for good, with graphql-ws: no event is missed, over lost connections and own restarts.
 *
 *     npm ci && npm run build
 *     PILOTLIGHT_TOKEN=pl_... node dist/watch.js cursor.txt
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { createClient } from "graphql-ws";
import WebSocket from "ws";

const URL = (process.env.PILOTLIGHT_URL ?? "http://127.0.0.1:8000/graphql").replace(/^http/, "ws");
const TOKEN = process.env.PILOTLIGHT_TOKEN;
const HEAD = "{ serverInfo { eventLog { head } } }";
const EVENTS = `
  subscription Events($after: String!) {
    instanceEvents(after: $after) { cursor type instanceId status operationSnapshot { kind status } }
  }
`;
const LONGEST_PAUSE = 30_000;
const FORBIDDEN = 4403;

type InstanceEvent = {
  cursor: string;
  type: string;
  instanceId: string;
  status: string | null;
  operationSnapshot: { kind: string; status: string } | null;
};

let unanswered: NodeJS.Timeout | undefined;
const client = createClient({
  url: URL,
  webSocketImpl: WebSocket, // Node 22 and browsers have their own
  connectionParams: { Authorization: `Bearer ${TOKEN}` },
  // An automatic reconnect would send the variables of the first time. We resubscribe with the last cursor.
  retryAttempts: 0,
  // A ping without a pong detects a dead connection.
  keepAlive: 20_000,
  on: {
    ping: (received) => {
      if (!received) unanswered = setTimeout(() => client.terminate(), 10_000);
    },
    pong: () => clearTimeout(unanswered),
    closed: () => clearTimeout(unanswered),
  },
});

/** Your work. It may be given an event again after a crash, so let it ask what is true before it acts. */
function handle(event: InstanceEvent): void {
  console.log(event.instanceId, event.type, event.status ?? event.operationSnapshot?.status ?? "");
}

async function watch(cursorFile: string): Promise<never> {
  let pause = 1000;
  for (;;) {
    try {
      if (!existsSync(cursorFile)) keep(cursorFile, await head()); // the first time: start at the head
      const after = readFileSync(cursorFile, "utf8");
      const messages = client.iterate<{ instanceEvents: InstanceEvent }>({ query: EVENTS, variables: { after } });
      for await (const { data, errors } of messages) {
        if (errors) throw errors;
        if (!data) continue;
        handle(data.instanceEvents);
        // After the work: if we are killed in between, the event comes again. Before it, the event would be lost.
        keep(cursorFile, data.instanceEvents.cursor);
        pause = 1000;
      }
    } catch (lost) {
      // A list: the server's errors. RESUME means: subscribe again with the last cursor. Others need a decision.
      if (Array.isArray(lost) && !lost.every((error) => error.extensions?.retryable)) {
        return giveUp(`refused: ${JSON.stringify(lost)}`);
      }
      if ((lost as { code?: number }).code === FORBIDDEN) return giveUp("The token is wrong, expired or revoked.");
      console.error(`cut off, again in about ${pause / 1000} s`);
    }
    // Jitter: not all subscribers of a restarted server reconnect at the same time.
    await sleep(pause * (0.5 + Math.random() / 2));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

/** The cursor of the newest event. Queries may be sent over the same connection. */
async function head(): Promise<string> {
  for await (const { data, errors } of client.iterate<{ serverInfo: { eventLog: { head: string } } }>({ query: HEAD })) {
    if (data) return data.serverInfo.eventLog.head;
    throw errors;
  }
  throw new Error("no answer");
}

/** Whole or not at all, whatever happens in between. */
function keep(file: string, cursor: string): void {
  writeFileSync(`${file}.new`, cursor);
  renameSync(`${file}.new`, file);
}

function giveUp(why: string): never {
  console.error(why);
  process.exit(1);
}

await watch(process.argv[2] ?? "cursor.txt");
