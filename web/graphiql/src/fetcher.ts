/** How documents reach the server: queries and mutations over HTTP, subscriptions over WebSocket, both with the token. */

import { createGraphiQLFetcher, type Fetcher } from "@graphiql/toolkit";
import { createClient } from "graphql-ws";

const ENDPOINT = "/graphql";
const FORBIDDEN = 4403; // the token is missing, wrong, expired or revoked: asking again would not help

export function fetcherWith(token: string): Fetcher {
  const authorization = `Bearer ${token}`;
  return createGraphiQLFetcher({
    url: ENDPOINT,
    headers: { authorization },
    enableIncrementalDelivery: false, // the server has no @defer, and says so for multipart
    wsClient: createClient({
      url: location.origin.replace(/^http/, "ws") + ENDPOINT,
      connectionParams: { Authorization: authorization },
      shouldRetry: (closed) => !(closed instanceof CloseEvent && closed.code === FORBIDDEN),
    }),
  });
}
