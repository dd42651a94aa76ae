/** A cache of Apollo that never goes back: `cache` and `link` for an ApolloClient. */
import { ApolloLink, defaultDataIdFromObject, InMemoryCache, type TypePolicy } from "@apollo/client";
import { concatMap, of, timer, type Observable } from "rxjs";
import { Newest } from "./newest.js";

const MOST_ATTEMPTS = 10;
const PAUSE = 50; // milliseconds, more with each attempt: a replica that the server reads from may be behind

export function newestForApollo(): { cache: InMemoryCache; link: ApolloLink } {
  const newest = new Newest();
  // What is out of date stays in its own message, for example in the answer to a mutation, and out of the cache.
  const keyFields: TypePolicy["keyFields"] = (object, context) =>
    newest.isOvertaken(object) ? false : defaultDataIdFromObject(object, context);
  const cache = new InMemoryCache({
    // Events do not change; those of a subscription are not read from the cache.
    typePolicies: { Instance: { keyFields }, Operation: { keyFields }, InstanceEvent: { keyFields: false } },
  });

  const link = new ApolloLink((operation, forward) => {
    const send = (attempt: number): Observable<ApolloLink.Result> =>
      forward(operation).pipe(
        concatMap((result) => {
          const isQuery = operation.operationType === "query";
          if (isQuery && attempt < MOST_ATTEMPTS && newest.isOvertaken(result.data)) {
            return timer(attempt * PAUSE).pipe(concatMap(() => send(attempt + 1)));
          }
          for (const id of newest.deliver(result.data)) forget(id);
          return of(result);
        }),
      );
    return send(1);
  });

  /** The fields of the version before. Queries that show one which the new version came without are sent again. */
  function forget(id: string): void {
    const isIdentity = (field: string) => field === "id" || field === "__typename";
    cache.modify({
      id,
      broadcast: false, // the new version is written next
      fields: (value, { fieldName, DELETE }) => (isIdentity(fieldName) ? value : DELETE),
    });
  }

  return { cache, link };
}
