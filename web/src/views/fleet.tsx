// The list of all instances, updated live.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { performMany } from "../actions.ts";
import { count, money, perMonth } from "../format.ts";
import { fleet, isLoaded, revision, stats } from "../live/fleet.ts";
import { filter, group, select, selected, setFilter, setGroup, setSorting, sorting } from "../live/fleet-address.ts";
import { type Burn, burnOf, type Column, type Group, groupOf, visibleRows } from "../live/filter-sort.ts";
import type { Row } from "../live/rows.ts";
import { may } from "../live/viewer.ts";
import { Hidden, Icon } from "../ui/icons.tsx";
import { Empty } from "../ui/parts.tsx";
import { Table } from "./fleet-table.tsx";

export function FleetView() {
  const rows = fleet.value.byId;
  const last = useRef<Row[]>([]);
  const shown = useMemo(() => {
    last.current = visibleRows(rows, filter.value, group.value, sorting.value, last.current);
    return last.current;
  }, [rows, revision.value, filter.value, group.value, sorting.value]);
  const selectedRows = useMemo(() => shown.filter((row) => selected.value.has(row.id)), [shown, selected.value]);
  const search = useRef<HTMLInputElement>(null);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || target.closest("input, textarea, select, dialog")) return;
      event.preventDefault();
      search.current?.focus();
      search.current?.select();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const isEmpty = isLoaded.value && rows.size === 0;
  return (
    <div class="view fill">
      <header class="view-head">
        <h1>Fleet</h1>
        {may("OPERATOR") && (
          <a class="button primary" href="#/create">
            <Icon name="create" size={16} />
            Create instance
          </a>
        )}
      </header>
      <Summary shown={shown} />
      {isEmpty ? (
        <NoInstances />
      ) : (
        <>
          <div class="toolbar">
            <div class="search">
              <Icon name="search" size={16} />
              <input
                ref={search}
                type="search"
                placeholder="Filter by name, product, region, label=value"
                aria-label="Filter instances"
                value={filter.value}
                onInput={(event) => setFilter(event.currentTarget.value)}
                onKeyDown={(event) => {
                  if (event.key === "Escape") setFilter("");
                }}
              />
              <kbd aria-hidden="true">/</kbd>
            </div>
            <Sorter />
            <Bulk selectedRows={selectedRows} clear={() => select(new Set())} total={shown.length} />
          </div>
          <Table shown={shown} />
        </>
      )}
    </div>
  );
}

function burnOfStats(figures: typeof stats.value): Burn | null {
  if (figures === null) return null;
  const { billed, unpriced, pricePerHour } = figures;
  return { billed, unpriced, price: pricePerHour ?? { amountMicros: 0, currency: "USD" } };
}

const GROUPS: readonly { group: Group; text: string }[] = [
  { group: "all", text: "All" },
  { group: "ready", text: "Ready" },
  { group: "pending", text: "Pending" },
  { group: "stopped", text: "Stopped" },
  { group: "failed", text: "Failed" },
];

function Summary({ shown }: { shown: readonly Row[] }) {
  const figures = stats.value;
  const isFiltered = group.value !== "all" || filter.value.trim() !== "";
  const burn = useMemo(() => (isFiltered ? burnOf(shown) : burnOfStats(figures)), [isFiltered, shown, figures]);
  const counts: Record<Group, number> = { all: figures?.total ?? 0, ready: 0, pending: 0, stopped: 0, failed: 0 };
  for (const each of figures?.byStatus ?? []) counts[groupOf(each.status)] += each.count;
  return (
    <div class="summary">
      <fieldset class="groups">
        <legend class="hidden">Filter by status</legend>
        {GROUPS.map((each) => (
          <label key={each.group} class={`group ${each.group} ${counts[each.group] ? "some" : ""} ${group.value === each.group ? "on" : ""}`}>
            <input
              type="radio"
              name="group"
              checked={group.value === each.group}
              onChange={() => setGroup(each.group)}
            />
            <span class="figure">{figures ? counts[each.group].toLocaleString("en-US") : "–"}</span>
            <span class="caption">{each.text}</span>
          </label>
        ))}
      </fieldset>
      <div class="cost">
        <span class="figure">
          {money(burn && burn.price, 2)}
          <small> / hour</small>
        </span>
        <span class="caption">
          {burn === null ? "Billed now" : `${burn.billed.toLocaleString("en-US")} billed now, ≈ ${perMonth(burn.price)} per month`}
          {burn !== null && burn.unpriced > 0 && `, without ${burn.unpriced} of unknown price`}
        </span>
      </div>
    </div>
  );
}

// Phones show no table head to sort by.
function Sorter() {
  return (
    <label class="sorter">
      <Hidden>Sort by</Hidden>
      <select
        value={`${sorting.value.column} ${sorting.value.descending ? "down" : "up"}`}
        onChange={(event) => {
          const [column, direction] = event.currentTarget.value.split(" ");
          setSorting({ column: column as Column, descending: direction === "down" });
        }}
      >
        <option value="age up">Newest first</option>
        <option value="age down">Oldest first</option>
        <option value="name up">By name</option>
        <option value="status up">By status</option>
        <option value="price down">Most expensive first</option>
        <option value="health up">Unhealthy first</option>
        <option value="ends up">Ending soonest first</option>
        <option value="product up">By product</option>
        <option value="region up">By region</option>
      </select>
    </label>
  );
}

function Bulk({ selectedRows, clear, total }: { selectedRows: readonly Row[]; clear: () => void; total: number }) {
  const stoppable = selectedRows.filter((row) => may("OPERATOR") && row.actions.includes("STOP"));
  const act = async (verb: "STOP" | "DELETE", rows: readonly Row[]) => {
    if (await performMany(verb, rows)) clear();
  };
  if (selectedRows.length === 0) return <p class="bulk muted">{count(total, "instance")}</p>;
  return (
    <div class="bulk on" role="group" aria-label="Actions for selected instances">
      <span>{selectedRows.length} selected</span>
      <button type="button" class="button" disabled={stoppable.length === 0} onClick={() => act("STOP", stoppable)}>
        <Icon name="stop" size={14} />
        Stop{stoppable.length > 0 && stoppable.length < selectedRows.length ? ` ${stoppable.length}` : ""}
      </button>
      <button type="button" class="button danger" disabled={!may("OPERATOR")} onClick={() => act("DELETE", selectedRows)}>
        <Icon name="trash" size={14} />
        Delete
      </button>
      <button type="button" class="icon-button" aria-label="Clear selection" onClick={clear}>
        <Icon name="cross" size={16} />
      </button>
    </div>
  );
}

function NoInstances() {
  return (
    <Empty icon="fleet" title="No instances yet">
      <p>
        An instance is a GPU machine that runs your container. Create one here or with the mutation <code>createInstance</code>,
        and follow its status live until its health check passes.
      </p>
      <p>
        <a class="button primary" href="#/create">
          Create instance
        </a>{" "}
        <a class="button" href="#/market">
          View products and prices
        </a>
      </p>
    </Empty>
  );
}
