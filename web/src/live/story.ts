// Following one instance: how it is, everything the log has of it, then every line that is added.
import { ApiError, ask, wordsOf } from "../api/request.ts";
import { backoff } from "../api/backoff.ts";
import { watch } from "../api/live.ts";
import {
  type EventLine, InstanceDetail, type InstanceDetailResult, InstanceHistory, type InstanceHistoryResult, InstanceLog,
} from "../generated/api.ts";

export type Detail = NonNullable<InstanceDetailResult["instance"]>;
export type Entry = EventLine;
export type Story =
  | { readonly phase: "loading" }
  | { readonly phase: "missing" }
  | { readonly phase: "refused"; readonly message: string }
  | { readonly phase: "told"; readonly instance: Detail; readonly entries: readonly Entry[]; readonly refresh: () => void };

// The rest of a very long life can be read through the API.
const MOST_ENTRIES = 2000;
// Several events come with one change; what they don't carry is asked for once, after the last of them.
const SETTLE = 150;

export function followInstance(id: string, tell: (story: Story) => void): () => void {
  let isOver = false;
  let instance: Detail | null = null;
  let entries: readonly Entry[] = [];
  let after: string | null = null;
  let stop: () => void = () => undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const show = () => {
    if (!isOver && instance) tell({ phase: "told", instance, entries, refresh });
  };

  const refresh = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      // Refused for good: what events tell is shown all the same, and the next one asks again.
      const found = await read().catch(() => null);
      if (isOver || !found) return;
      // What was read may be older than what was told meanwhile.
      if (instance && found.version < instance.version) instance = { ...found, ...stateOf(instance) };
      else instance = found;
      show();
    }, SETTLE);
  };

  const read = () => patiently(async () => (await ask(InstanceDetail, { id })).instance);

  const patiently = async <Result>(attempt: () => Promise<Result>): Promise<Result | null> => {
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

  const begin = async () => {
    try {
      entries = [];
      after = null;
      instance = await read();
      if (isOver) return;
      if (!instance) return tell({ phase: "missing" });
      for (;;) {
        const page: InstanceHistoryResult | null = await patiently(() => ask(InstanceHistory, { id, after }));
        if (isOver || !page) return;
        entries = [...entries, ...page.events.nodes].slice(-MOST_ENTRIES);
        after = page.events.pageInfo.endCursor;
        if (!page.events.pageInfo.hasNextPage) break;
      }
      for (const entry of entries) learn(entry);
      show();
      stop = watch(InstanceLog, () => ({ id, after }), {
        next: ({ instanceEvents: entry }) => {
          after = entry.cursor;
          entries = [...entries, entry].slice(-MOST_ENTRIES);
          learn(entry);
          show();
          refresh();
        },
        refused: (code, message) => {
          if (code === "CURSOR_EXPIRED" || code === "INVALID_CURSOR") void begin();
          else tell({ phase: "refused", message });
        },
      });
    } catch (error) {
      if (!isOver) tell({ phase: "refused", message: wordsOf(error) });
    }
  };

  const learn = (entry: Entry) => {
    if (!instance) return;
    if (entry.instance && entry.instance.version > instance.version) instance = { ...instance, ...entry.instance };
    if (entry.health && entry.instance && entry.instance.version >= instance.version) instance = { ...instance, health: entry.health };
    const told = entry.operation;
    if (told) {
      const known = instance.operations.find((each) => each.id === told.id);
      const operations = known
        ? instance.operations.map((each) => (each.id === told.id && told.version > each.version ? { ...each, ...told } : each))
        : [{ ...told, attempts: [] }, ...instance.operations];
      instance = { ...instance, operations };
    }
  };

  void begin();
  return () => {
    isOver = true;
    clearTimeout(timer);
    stop();
  };
}

// All that events carry, and nothing that only a read has.
function stateOf(instance: Detail): Partial<Detail> {
  const { env: _env, webhook: _webhook, operations: _operations, health: _health, ...state } = instance;
  return state;
}
