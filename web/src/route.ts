// Where in the page one is: the part of the address behind #, so that any server can serve it.
import { signal } from "@preact/signals";

export type Route =
  | { readonly view: "fleet" | "market" | "work" | "settings" }
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
    const given = new URLSearchParams(query);
    return { view: "create", product: given.get("product"), region: given.get("region") };
  }
  if (first === "market" || first === "work" || first === "settings") return { view: first };
  return { view: "fleet" };
}

export function go(hash: string): void {
  location.hash = hash;
}
