/** A normalised cache of urql that never goes back: takes the place of `cacheExchange` in a Client's exchanges. */
import { makeOperation, type Exchange, type ExchangeIO, type Operation, type OperationResult } from "@urql/core";
import { cacheExchange, type UpdateResolver } from "@urql/exchange-graphcache";
import { filter, fromArray, makeSubject, map, merge, mergeMap, onPush, pipe, share, type Source } from "wonka";
import { keyOf, Newest } from "./newest.js";

const MOST_ATTEMPTS = 10;
const PAUSE = 50; // milliseconds, more with each attempt: a replica that the server reads from may be behind

export function newestForUrql(): Exchange {
  const newest = new Newest();
  let changed = new Set<string>();
  // What is out of date stays in its own message, for example in the answer to a mutation, and out of the cache.
  const key = (object: Record<string, unknown>) => (newest.isOvertaken(object) ? null : (object.id as string));

  /** Forget the fields of the version before. Queries that show one which the new one came without are sent again. */
  const forget: UpdateResolver = (written, _args, cache) => {
    const id = keyOf(written as { __typename: string; id: string });
    if (!changed.delete(id)) return;
    const isWritten = (field: string) => field === "__typename" || (field in written && !newest.isOvertaken(written));
    for (const { fieldName, arguments: args } of cache.inspectFields(id)) {
      if (!isWritten(fieldName)) cache.invalidate(id, fieldName, args ?? undefined);
    }
  };

  return (input) => {
    const cached = cacheExchange({
      // Events do not change; those of a subscription are not read from the cache.
      keys: { Instance: key, Operation: key, InstanceEvent: () => null },
      updates: { Instance: { version: forget }, Operation: { version: forget } },
    });
    const ordered = cached({ ...input, forward: (operations) => inOrder(share(operations), input.forward) });
    return (operations) =>
      pipe(ordered(pipe(operations, map(withoutPlace))), filter((result) => !result.extensions?.isOnlyForTheCache));
  };

  function inOrder(sent: Source<Operation>, forward: ExchangeIO): Source<OperationResult> {
    const again = makeSubject<Operation>();
    const retries = new Map<number, { attempt: number; timer: ReturnType<typeof setTimeout> }>();

    /** Send a query again whose answer was overtaken; the cache still waits for it. */
    function retry(operation: Operation, attempt: number): void {
      clearTimeout(retries.get(operation.key)?.timer);
      const timer = setTimeout(() => again.next(operation), attempt * PAUSE);
      retries.set(operation.key, { attempt: attempt + 1, timer });
    }

    function end({ key }: Operation): void {
      clearTimeout(retries.get(key)?.timer);
      retries.delete(key);
    }

    function arrived(result: OperationResult): OperationResult[] {
      const { operation, data } = result;
      const attempt = retries.get(operation.key)?.attempt ?? 1;
      if (operation.kind === "query" && attempt < MOST_ATTEMPTS && newest.isOvertaken(data)) {
        retry(operation, attempt);
        return [];
      }
      end(operation);
      changed = newest.deliver(data);
      // After the answer to a query, the cache does not send other queries that now miss a field: two could undo each
      // other for ever. Here they are sent because of a new version, which ends. An empty mutation lifts the block.
      return operation.kind === "query" && changed.size > 0 ? [result, empty(lifting(operation))] : [result];
    }

    const active = pipe(sent, onPush((operation) => operation.kind === "teardown" && end(operation)));
    const results = pipe(forward(merge([active, again.source])), mergeMap((result) => fromArray(arrived(result))));
    // The cache keeps a place for each query in the order in which they are sent, and would put events that come before
    // the answer below it. An empty result gives the place up: what arrives is written in its order.
    const places = pipe(sent, filter(({ kind }) => kind === "query"), map(empty));
    return share(merge([places, results])); // the cache subscribes twice
  }
}

function empty(operation: Operation): OperationResult {
  const extensions = { isOnlyForTheCache: true };
  return { operation, data: undefined, extensions, stale: true, hasNext: operation.kind === "query" };
}

/** A mutation keeps no place for an optimistic result either; events would be put below what arrived meanwhile. */
function withoutPlace(operation: Operation): Operation {
  if (operation.kind !== "mutation") return operation;
  return makeOperation("mutation", operation, { ...operation.context, requestPolicy: "network-only" });
}

function lifting({ query, variables, context }: Operation): Operation {
  return makeOperation("mutation", { key: 0, query, variables }, context);
}
