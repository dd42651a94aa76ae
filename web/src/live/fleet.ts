// Follows the fleet: a cursor of the event log, a snapshot at least as new, then every event after the cursor.
import { signal } from "@preact/signals";
import { ApiError, request } from "../api/request.ts";
import { backoff } from "../api/backoff.ts";
import { subscribe } from "../api/subscriptions.ts";
import { FleetEvents, FleetPage, type FleetPageResult, type OrderDirection, WatchFleetStats, type WatchFleetStatsResult } from "../generated/api.ts";
import { duration, explain, words } from "../format.ts";
import { announce } from "./announcements.ts";
import { type FleetEvent, Rows } from "./rows.ts";
import { toastBatched } from "./toasts.ts";

// Changes are rendered in batches, at most this often: less CPU, with no visible delay.
const RENDER_INTERVAL = 100;

export const fleet = signal<Rows>(new Rows());
// Incremented to render again; the rows themselves are changed in place.
export const revision = signal(0);
export const isLoaded = signal(false);
export const stats = signal<WatchFleetStatsResult["fleetStats"] | null>(null);

export function followFleet(): () => void {
  let stops: (() => void)[] = [];
  let isOver = false;
  let failures = 0;

  const start = () => {
    const rows = new Rows();
    let after: string | null = null;
    const stopStats = subscribe(WatchFleetStats, () => ({}), {
      next: ({ fleetStats }) => {
        stats.value = fleetStats;
        if (after !== null) return;
        after = fleetStats.cursor;
        fleet.value = rows;
        stops.push(
          subscribe(FleetEvents, () => ({ after }), {
            next: ({ instanceEvents: event }) => {
              after = event.cursor;
              rows.apply(event);
              scheduleRender();
              notify(event, rows);
            },
            onError: restart,
          }),
        );
        void load(rows);
      },
      onError: restart,
    });
    stops.push(stopStats);
  };

  // The cursor has expired or belongs to another database: discard the rows and load everything again.
  const restart = () => {
    for (const stop of stops) stop();
    stops = [];
    isLoaded.value = false;
    if (!isOver) setTimeout(() => !isOver && start(), backoff(failures++));
  };

  // Pages can only be loaded one after the other, so a large fleet is loaded from both ends at once until they meet.
  const load = async (rows: Rows) => {
    const newest = new Set<string>();
    const oldest = new Set<string>();
    await Promise.all([loadPages(rows, "DESC", newest, oldest), loadPages(rows, "ASC", oldest, newest)]);
    if (isOver || fleet.value !== rows) return;
    rows.finishLoading();
    failures = 0;
    isLoaded.value = true;
    scheduleRender();
  };

  const loadPages = async (rows: Rows, direction: OrderDirection, own: Set<string>, others: ReadonlySet<string>) => {
    let page: string | null = null;
    let tries = 0;
    while (!isOver && fleet.value === rows) {
      try {
        const { instances }: FleetPageResult = await request(FleetPage, { after: page, direction });
        tries = 0;
        for (const { health, ...row } of instances.nodes) {
          rows.load({ ...row, health: health?.status ?? null });
          own.add(row.id);
        }
        scheduleRender();
        if (!instances.pageInfo.hasNextPage || instances.nodes.some((row) => others.has(row.id))) return;
        page = instances.pageInfo.endCursor;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (!error.retryable) return restart();
        await new Promise((resolve) => setTimeout(resolve, backoff(tries++)));
      }
    }
  };

  start();
  return () => {
    isOver = true;
    for (const stop of stops) stop();
  };
}

let timer: ReturnType<typeof setTimeout> | undefined;

function scheduleRender(): void {
  timer ??= setTimeout(() => {
    timer = undefined;
    revision.value += 1;
  }, RENDER_INTERVAL);
}

function notify(event: FleetEvent, rows: Rows): void {
  const name = event.instance?.name ?? rows.byId.get(event.instanceId)?.name;
  if (event.status && name) announce(name, event.status);
  const { operation } = event;
  if (event.type !== "operation.finished" || !operation || operation.status === "SUPERSEDED") return;
  const isGood = operation.status === "SUCCEEDED";
  const took = operation.finishedAt ? duration(Date.parse(operation.finishedAt) - Date.parse(operation.createdAt)) : "";
  toastBatched({
    kind: isGood ? "good" : operation.status === "CANCELLED" ? "plain" : "bad",
    title: `${words(operation.kind)} ${words(operation.status).toLowerCase()}: ${name ?? event.instanceId}`,
    text: operation.error ? explain(operation.error) : (took ? `after ${took}` : undefined),
    href: operation.kind === "DELETE" && isGood ? undefined : `#/instances/${event.instanceId}`,
  });
}
