/** How documents reach the server: queries and mutations over HTTP, subscriptions over WebSocket, both with the token. */

import { createGraphiQLFetcher, type Fetcher, type FetcherOpts, type FetcherParams } from "@graphiql/toolkit";
import { Kind, parse } from "graphql";
import { createClient } from "graphql-ws";

const ENDPOINT = "/graphql";
const FORBIDDEN = 4403; // the token is missing, wrong, expired or revoked: asking again would not help

export function fetcherWith(token: string): Fetcher {
  const authorization = `Bearer ${token}`;
  const fetcher = createGraphiQLFetcher({
    url: ENDPOINT,
    headers: { authorization },
    enableIncrementalDelivery: false, // the server has no @defer, and says so for multipart
    wsClient: createClient({
      url: location.origin.replace(/^http/, "ws") + ENDPOINT,
      connectionParams: { Authorization: authorization },
      shouldRetry: (closed) => !(closed instanceof CloseEvent && closed.code === FORBIDDEN),
    }),
  });
  return (params, options) => fetcher(...asWritten(params, options));
}

/**
 * What the text itself says. For a tenth of a second after a change of tabs, GraphiQL still has the other tab's
 * document and the name of its operation: whoever is quick would run something that is not there, or not as a
 * subscription.
 */
function asWritten(params: FetcherParams, options?: FetcherOpts): [FetcherParams, FetcherOpts | undefined] {
  let documentAST;
  try {
    documentAST = parse(params.query);
  } catch {
    return [params, options]; // the server says what is wrong with it
  }
  const names = documentAST.definitions
    .filter((definition) => definition.kind === Kind.OPERATION_DEFINITION)
    .map((operation) => operation.name?.value);
  const operationName = names.length === 1 ? names[0] : params.operationName;
  return [{ ...params, operationName }, { ...options, documentAST }];
}
