// Following the fleet: where the log stands, a snapshot that is at least as new, then every event behind that place.
import { signal } from "@preact/signals";
import { ApiError, ask } from "../api/request.ts";
import { backoff } from "../api/backoff.ts";
import { watch } from "../api/live.ts";
import { FleetEvents, FleetPage, type FleetPageResult, type OrderDirection, WatchFleetStats, type WatchFleetStatsResult } from "../generated/api.ts";
import { duration, words } from "../format.ts";
import { say } from "./spoken.ts";
import { type FleetEvent, Rows } from "./rows.ts";
import { tellSoon } from "./toasts.ts";

// Changes are shown together, so often at most. A person sees no difference, a laptop does.
const SHOW_EVERY = 100;

export const fleet = signal<Rows>(new Rows());
// Grows with whatever is new to be seen; the rows themselves are changed in place.
export const seen = signal(0);
export const isLoaded = signal(false);
export const stats = signal<WatchFleetStatsResult["fleetStats"] | null>(null);

export function followFleet(): () => void {
  let stops: (() => void)[] = [];
  let isOver = false;
  let failures = 0;

  const begin = () => {
    const rows = new Rows();
    let after: string | null = null;
    const stopStats = watch(WatchFleetStats, () => ({}), {
      next: ({ fleetStats }) => {
        stats.value = fleetStats;
        if (after !== null) return;
        after = fleetStats.cursor;
        fleet.value = rows;
        stops.push(
          watch(FleetEvents, () => ({ after }), {
            next: ({ instanceEvents: event }) => {
              after = event.cursor;
              rows.apply(event);
              show();
              tellOf(event, rows);
            },
            refused: again,
          }),
        );
        void load(rows);
      },
      refused: again,
    });
    stops.push(stopStats);
  };

  // The cursor is too old, or of another database: what is here can't be brought up to date, so it is read anew.
  const again = () => {
    for (const stop of stops) stop();
    stops = [];
    isLoaded.value = false;
    if (!isOver) setTimeout(() => !isOver && begin(), backoff(failures++));
  };

  // Pages follow each other, so a large fleet is read from both ends at once, until they meet in the middle.
  const load = async (rows: Rows) => {
    const newest = new Set<string>();
    const oldest = new Set<string>();
    await Promise.all([readPages(rows, "DESC", newest, oldest), readPages(rows, "ASC", oldest, newest)]);
    if (isOver || fleet.value !== rows) return;
    rows.settle();
    failures = 0;
    isLoaded.value = true;
    show();
  };

  const readPages = async (rows: Rows, direction: OrderDirection, mine: Set<string>, others: ReadonlySet<string>) => {
    let page: string | null = null;
    let tries = 0;
    while (!isOver && fleet.value === rows) {
      try {
        const { instances }: FleetPageResult = await ask(FleetPage, { after: page, direction });
        tries = 0;
        for (const { health, ...row } of instances.nodes) {
          rows.load({ ...row, health: health?.status ?? null });
          mine.add(row.id);
        }
        show();
        if (!instances.pageInfo.hasNextPage || instances.nodes.some((row) => others.has(row.id))) return;
        page = instances.pageInfo.endCursor;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (!error.retryable) return again();
        await new Promise((resolve) => setTimeout(resolve, backoff(tries++)));
      }
    }
  };

  begin();
  return () => {
    isOver = true;
    for (const stop of stops) stop();
  };
}

let timer: ReturnType<typeof setTimeout> | undefined;

function show(): void {
  timer ??= setTimeout(() => {
    timer = undefined;
    seen.value += 1;
  }, SHOW_EVERY);
}

function tellOf(event: FleetEvent, rows: Rows): void {
  const name = event.instance?.name ?? rows.byId.get(event.instanceId)?.name;
  if (event.status && name) say(name, event.status);
  const { operation } = event;
  if (event.type !== "operation.finished" || !operation || operation.status === "SUPERSEDED") return;
  const verb = words(operation.kind);
  const isGood = operation.status === "SUCCEEDED";
  const took = operation.finishedAt ? duration(Date.parse(operation.finishedAt) - Date.parse(operation.createdAt)) : "";
  tellSoon({
    kind: isGood ? "good" : operation.status === "CANCELLED" ? "plain" : "bad",
    title: `${verb} ${isGood ? "done" : operation.status === "CANCELLED" ? "called off" : "failed"}: ${name ?? event.instanceId}`,
    text: operation.error?.message ?? (took ? `after ${took}` : undefined),
    href: operation.kind === "DELETE" && isGood ? undefined : `#/instances/${event.instanceId}`,
  });
}
