// Follows one instance: its state, its past events, then every new event.
import { ApiError, messageOf, request } from "../api/request.ts";
import { backoff } from "../api/backoff.ts";
import { subscribe } from "../api/subscriptions.ts";
import {
  type EventLine, InstanceDetail, type InstanceDetailResult, InstanceHistory, type InstanceHistoryResult, InstanceLog,
} from "../generated/api.ts";

export type Detail = NonNullable<InstanceDetailResult["instance"]>;
export type Entry = EventLine;
export type InstanceFeed =
  | { readonly phase: "loading" }
  | { readonly phase: "missing" }
  | { readonly phase: "error"; readonly message: string }
  | { readonly phase: "loaded"; readonly instance: Detail; readonly entries: readonly Entry[]; readonly refresh: () => void };

// Older events are available through the API.
const MAX_ENTRIES = 2000;
// One change causes several events; fields they do not carry are requested once, after the last of them.
const REFRESH_DELAY = 150;
// Nothing happens to a create that waits in line or for capacity, but its place changes.
const PLACE_DELAY = 10_000;

export function followInstance(id: string, update: (feed: InstanceFeed) => void): () => void {
  let isOver = false;
  let instance: Detail | null = null;
  let entries: readonly Entry[] = [];
  let after: string | null = null;
  let stop: () => void = () => undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const show = () => {
    if (isOver || !instance) return;
    update({ phase: "loaded", instance, entries, refresh });
    if (instance.operations.some(({ queue, wait }) => queue ?? wait)) refreshAfter(PLACE_DELAY);
  };

  const refresh = () => refreshAfter(REFRESH_DELAY);

  const refreshAfter = (delay: number) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      // A permanent error is ignored: events still update the view, and the next one refreshes again.
      const loaded = await read().catch(() => null);
      if (isOver || !loaded) return;
      // Events that arrived meanwhile may be newer than the response.
      if (instance && loaded.version < instance.version) instance = { ...loaded, ...stateOf(instance) };
      else instance = loaded;
      show();
    }, delay);
  };

  const read = () => withRetry(async () => (await request(InstanceDetail, { id })).instance);

  const withRetry = async <Result>(attempt: () => Promise<Result>): Promise<Result | null> => {
    for (let tries = 0; !isOver; tries++) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof ApiError) || !error.retryable) throw error;
        await new Promise((resolve) => setTimeout(resolve, backoff(tries)));
      }
    }
    return null;
  };

  const start = async () => {
    try {
      entries = [];
      after = null;
      instance = await read();
      if (isOver) return;
      if (!instance) return update({ phase: "missing" });
      for (;;) {
        const page: InstanceHistoryResult | null = await withRetry(() => request(InstanceHistory, { id, after }));
        if (isOver || !page) return;
        entries = [...entries, ...page.events.nodes].slice(-MAX_ENTRIES);
        after = page.events.pageInfo.endCursor;
        if (!page.events.pageInfo.hasNextPage) break;
      }
      for (const entry of entries) apply(entry);
      show();
      stop = subscribe(InstanceLog, () => ({ id, after }), {
        next: ({ instanceEvents: entry }) => {
          after = entry.cursor;
          entries = [...entries, entry].slice(-MAX_ENTRIES);
          apply(entry);
          show();
          refresh();
        },
        onError: (code, message) => {
          if (code === "CURSOR_EXPIRED" || code === "INVALID_CURSOR") void start();
          else update({ phase: "error", message });
        },
      });
    } catch (error) {
      if (!isOver) update({ phase: "error", message: messageOf(error) });
    }
  };

  const apply = (entry: Entry) => {
    if (!instance) return;
    if (entry.instance && entry.instance.version > instance.version) instance = { ...instance, ...entry.instance };
    if (entry.health && entry.instance && entry.instance.version >= instance.version) instance = { ...instance, health: entry.health };
    const { operation } = entry;
    if (operation) {
      const known = instance.operations.find((each) => each.id === operation.id);
      const operations = known
        ? instance.operations.map((each) => (each.id === operation.id && operation.version > each.version ? { ...each, ...operation } : each))
        : [{ ...operation, queue: null, wait: null, attempts: [] }, ...instance.operations];
      instance = { ...instance, operations };
    }
  };

  void start();
  return () => {
    isOver = true;
    clearTimeout(timer);
    stop();
  };
}

// The fields that events carry, without those that only InstanceDetail has.
function stateOf(instance: Detail): Partial<Detail> {
  const { env: _env, webhook: _webhook, operations: _operations, health: _health, machines: _machines, ...state } = instance;
  return state;
}
