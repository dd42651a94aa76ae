// Where the user is, kept in the URL’s fragment: view, tab, filter, sorting and selection, so that reloading and going
// back keep them and a link can be sent. The server needs only one page.
import { signal } from "@preact/signals";

const VIEWS = ["fleet", "create", "market", "volumes", "costs", "account", "events", "jobs", "settings"] as const;
export type View = (typeof VIEWS)[number] | "instance";

export interface Route {
  readonly view: View;
  readonly id: string; // of an instance
  readonly tab: string | null;
  readonly query: Readonly<Record<string, string>>;
}

export const route = signal<Route>(read(location.hash));
// The fleet as it was last shown: links back to it keep its filter. Every entry of the history knows it, for a reload.
export const fleetHash = signal((history.state as { fleet?: string } | null)?.fleet ?? "#/");

// A browser refuses more than 200 changes of its history in 30 seconds.
const WRITE_DELAY = 200;
let timer: ReturnType<typeof setTimeout> | undefined;

remember(route.value);
addEventListener("hashchange", () => {
  clearTimeout(timer);
  route.value = read(location.hash);
  remember(route.value);
});

export function read(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?");
  const [first = "", second, third] = path.split("/");
  const query = Object.fromEntries(new URLSearchParams(search));
  if (first === "instances" && second) return { view: "instance", id: decodeURIComponent(second), tab: third ?? null, query };
  const view = first === "work" ? "jobs" : VIEWS.find((each) => each === first); // "work" is a former address
  return { view: view ?? "fleet", id: "", tab: second ?? null, query };
}

export function hashOf({ view, id, tab, query }: Route): string {
  const path = [view === "fleet" ? "" : view === "instance" ? `instances/${encodeURIComponent(id)}` : view, tab].filter(Boolean).join("/");
  const search = new URLSearchParams(query).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

export function go(hash: string): void {
  location.hash = hash;
}

export function parameter(name: string): string {
  return route.value.query[name] ?? "";
}

// Changes parameters of the current view; an empty one is left out. Choices can be undone with the back button, text
// that is being typed can not.
export function setParameters(changes: Readonly<Record<string, string>>, isTyping = false): void {
  const query = Object.fromEntries(Object.entries({ ...route.value.query, ...changes }).filter(([, value]) => value !== ""));
  if (JSON.stringify(query) === JSON.stringify(route.value.query)) return;
  route.value = { ...route.value, query };
  remember(route.value);
  clearTimeout(timer);
  const hash = hashOf(route.value);
  if (isTyping) timer = setTimeout(() => history.replaceState({ fleet: fleetHash.value }, "", hash), WRITE_DELAY);
  else history.pushState({ fleet: fleetHash.value }, "", hash);
}

function remember(current: Route): void {
  if (current.view === "fleet") fleetHash.value = hashOf(current);
  else if (history.state === null) history.replaceState({ fleet: fleetHash.value }, "");
}
