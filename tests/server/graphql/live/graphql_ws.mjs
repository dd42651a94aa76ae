// Watches with the reference client of the protocol, going round the addresses and resuming by cursor.
// node graphql_ws.mjs TOKEN AFTER COUNT URL...
import { createClient } from 'graphql-ws';
import WebSocket from 'ws';

const [token, start, count, ...urls] = process.argv.slice(2);
const query = 'subscription ($after: String) { instanceEvents(after: $after) { id cursor } }';
let after = start;
let seen = 0;
let turn = 0;

while (seen < Number(count)) {
  const client = createClient({
    url: urls[turn++ % urls.length],
    webSocketImpl: WebSocket,
    connectionParams: { Authorization: `Bearer ${token}` },
    keepAlive: 500,
    retryAttempts: 0,
  });
  try {
    for await (const { data, errors } of client.iterate({ query, variables: { after } })) {
      if (errors) throw errors;
      after = data.instanceEvents.cursor;
      console.log(JSON.stringify({ id: data.instanceEvents.id }));
      if (++seen === Number(count)) break;
    }
  } catch (event) {
    console.log(JSON.stringify({ closed: event.code ?? String(event) }));
    await new Promise((resolve) => setTimeout(resolve, 50));
  } finally {
    client.dispose();
  }
}
process.exit(0);
