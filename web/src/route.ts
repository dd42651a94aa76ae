// The current view, kept in the URL’s fragment: the server needs only one page.
import { signal } from "@preact/signals";

export type Route =
  | { readonly view: "fleet" | "market" | "volumes" | "jobs" | "settings" }
  | { readonly view: "account" | "events"; readonly tab: string | null }
  | { readonly view: "create"; readonly product: string | null; readonly region: string | null }
  | { readonly view: "instance"; readonly id: string };

export const route = signal<Route>(read(location.hash));

addEventListener("hashchange", () => {
  route.value = read(location.hash);
});

export function read(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [first, second] = path.split("/");
  if (first === "instances" && second) return { view: "instance", id: decodeURIComponent(second) };
  if (first === "create") {
    const parameters = new URLSearchParams(query);
    return { view: "create", product: parameters.get("product"), region: parameters.get("region") };
  }
  if (first === "market" || first === "volumes" || first === "jobs" || first === "settings") return { view: first };
  if (first === "account" || first === "events") return { view: first, tab: second ?? null };
  if (first === "work") return { view: "jobs" }; // the view's former address, which may be bookmarked
  return { view: "fleet" };
}

export function go(hash: string): void {
  location.hash = hash;
}
