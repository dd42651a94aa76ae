/** Sends queries and mutations over HTTP and subscriptions over WebSocket, both with the token. */

import { createGraphiQLFetcher, type Fetcher, type FetcherOpts, type FetcherParams } from "@graphiql/toolkit";
import { Kind, parse } from "graphql";
import { createClient } from "graphql-ws";

const ENDPOINT = "/graphql";
const FORBIDDEN = 4403; // the token is missing, wrong, expired or revoked: a retry would not help

export function createFetcher(token: string): Fetcher {
  const authorization = `Bearer ${token}`;
  const fetcher = createGraphiQLFetcher({
    url: ENDPOINT,
    headers: { authorization },
    enableIncrementalDelivery: false, // the server has no @defer and rejects multipart
    wsClient: createClient({
      url: location.origin.replace(/^http/, "ws") + ENDPOINT,
      connectionParams: { Authorization: authorization },
      shouldRetry: (closed) => !(closed instanceof CloseEvent && closed.code === FORBIDDEN),
    }),
  });
  return (params, options) => fetcher(...withParsedDocument(params, options));
}

/**
 * Takes document and operation name from the text itself. For a tenth of a second after a change of tabs, GraphiQL
 * still has those of the other tab: running at once would send a wrong name, or a subscription over HTTP.
 */
function withParsedDocument(params: FetcherParams, options?: FetcherOpts): [FetcherParams, FetcherOpts | undefined] {
  let documentAST;
  try {
    documentAST = parse(params.query);
  } catch {
    return [params, options]; // the server reports the syntax error
  }
  const names = documentAST.definitions
    .filter((definition) => definition.kind === Kind.OPERATION_DEFINITION)
    .map((operation) => operation.name?.value);
  const operationName = names.length === 1 ? names[0] : params.operationName;
  return [{ ...params, operationName }, { ...options, documentAST }];
}
