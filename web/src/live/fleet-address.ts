// The fleet’s filter, status group, sorting and selection, as they are in the address.
import { computed, signal } from "@preact/signals";
import { parameter, route, setParameters } from "../route.ts";
import { COLUMNS, type Column, GROUPS, type Group, type Sorting } from "./filter-sort.ts";

// A longer selection would make a longer address than browsers and chats keep.
const MOST_SELECTED = 50;

export const filter = computed(() => parameter("q"));
export const group = computed<Group>(() => GROUPS.find((each) => each === parameter("status")) ?? "all");
export const sorting = computed<Sorting>(() => {
  const [name = "", direction] = parameter("sort").split(".");
  return { column: COLUMNS.find((each) => each === name) ?? "age", descending: direction === "desc" };
});

// Of a selection that does not fit into the address.
const large = signal<ReadonlySet<string> | null>(null);
export const selected = computed<ReadonlySet<string>>(() => {
  const ids = parameter("selected");
  if (ids === "many") return large.value ?? new Set();
  return new Set(ids ? ids.split(",") : []);
});

export function setFilter(text: string): void {
  setParameters({ q: text }, true);
}

export function setGroup(value: Group): void {
  setParameters({ status: value === "all" ? "" : value });
}

export function setSorting({ column, descending }: Sorting): void {
  setParameters({ sort: column === "age" && !descending ? "" : `${column}${descending ? ".desc" : ""}` });
}

export function select(ids: ReadonlySet<string>): void {
  if (route.value.view !== "fleet") return; // an action that ended after the user left
  large.value = ids.size > MOST_SELECTED ? ids : null;
  setParameters({ selected: ids.size > MOST_SELECTED ? "many" : [...ids].join(",") }, true);
}

export function sortBy(column: Column): void {
  const current = sorting.value;
  setSorting({ column, descending: current.column === column && !current.descending });
}
