/**
 * Create an instance and follow it until it is READY, with urql.
 *
 *     npm ci && npm run build
 *     PILOTLIGHT_TOKEN=pl_... node dist/create.js trainer
 */
import { Client, fetchExchange, gql, subscriptionExchange } from "@urql/core";
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const URL = process.env.PILOTLIGHT_URL ?? "http://127.0.0.1:8000/graphql";
const AUTHORIZATION = { Authorization: `Bearer ${process.env.PILOTLIGHT_TOKEN}` };

type Problem = { code: string; message: string };
type Operation = {
  status: "QUEUED" | "RUNNING" | "SUCCEEDED" | "FAILED" | "CANCELLED" | "SUPERSEDED";
  phase: string;
  progress: number;
  error: Problem | null;
  instance: { name: string; status: string; endpoints: { address: string }[] };
};

const INSTANCES = gql<{ instances: { nodes: { name: string; status: string }[] } }>`
  query Instances {
    instances(first: 100) { nodes { name status } }
  }
`;
const CREATE = gql<{ createInstance: { operation: { id: string } | null; errors: Problem[] } }>`
  mutation Create($input: CreateInstanceInput!) {
    createInstance(input: $input) { operation { id } errors { code message path } }
  }
`;
const FOLLOW = gql<{ operationUpdated: { operation: Operation } }>`
  subscription Follow($id: ID!) {
    operationUpdated(id: $id) {
      operation { status phase progress error { code message } instance { name status endpoints { address } } }
    }
  }
`;

const sockets = createClient({
  url: URL.replace(/^http/, "ws"),
  webSocketImpl: WebSocket, // Node 22 and browsers have their own
  connectionParams: AUTHORIZATION,
  // Automatic reconnects are right here: operationUpdated starts with the current operation.
  retryAttempts: 20,
  shouldRetry: (closed) => (closed as { code?: number }).code !== 4403,
});
const client = new Client({
  url: URL,
  preferGetMethod: false,
  fetchOptions: { headers: AUTHORIZATION },
  exchanges: [
    fetchExchange,
    subscriptionExchange({
      forwardSubscription: ({ query = "", variables }) => ({
        subscribe: (sink) => ({ unsubscribe: sockets.subscribe({ query, variables }, sink) }),
      }),
    }),
  ],
});

const name = process.argv[2] ?? "trainer";

// The key makes it safe to run this again: the same key never makes a second instance.
const input = {
  name,
  productName: "RTX 4090 24GB",
  image: "nginx",
  ports: [{ port: 80 }],
  idempotencyKey: `create-${name}`,
};
const created = await client.mutation(CREATE, { input });
// An error of the request itself: no token, too many requests, no connection, a fault of the server.
if (created.error || !created.data) fail(`refused: ${created.error}`);
const { operation: accepted, errors } = created.data.createInstance;
// Refusals: each with a code, a message and the path of the field.
if (!accepted) fail(errors.map(({ code, message }) => `${code}: ${message}`).join("\n"));

const over = await new Promise<Operation>((resolve) => {
  client.subscription(FOLLOW, { id: accepted.id }).subscribe(({ data, error, hasNext }) => {
    if (error || !data) return fail(`refused: ${error}`);
    const { operation } = data.operationUpdated;
    if (!hasNext) return resolve(operation); // urql repeats the last one when the subscription has ended
    console.log(`${operation.progress} % ${operation.phase}`);
  });
});
if (over.status !== "SUCCEEDED") fail(`${over.status}: ${over.error?.message}`);
console.log(`${over.instance.name} is ${over.instance.status}: ${over.instance.endpoints[0]?.address}`);

const all = await client.query(INSTANCES, {});
console.log(`${all.data?.instances.nodes.length} instances in all`);
await sockets.dispose();

function fail(why: string): never {
  console.error(why);
  process.exit(1);
}
