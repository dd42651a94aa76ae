// The table of the fleet: a row per instance, of which only the visible ones are rendered.
import { extend } from "../actions.ts";
import { money } from "../format.ts";
import { isLoaded } from "../live/fleet.ts";
import { select, selected, sortBy, sorting } from "../live/fleet-address.ts";
import type { Column } from "../live/filter-sort.ts";
import type { Row } from "../live/rows.ts";
import { may } from "../live/viewer.ts";
import { setParameters } from "../route.ts";
import { HealthMark, StatusChip, StatusTags } from "../ui/chip.tsx";
import { Icon } from "../ui/icons.tsx";
import { Reclaim, Since } from "../ui/since.tsx";
import { Until } from "../ui/until.tsx";
import { VirtualTable } from "../ui/virtual-table.tsx";

const COLUMNS: readonly { column: Column; text: string; right?: boolean }[] = [
  { column: "name", text: "Name" },
  { column: "status", text: "Status" },
  { column: "product", text: "Product" },
  { column: "region", text: "Region" },
  { column: "price", text: "Price/hour", right: true },
  { column: "health", text: "Health" },
  { column: "ends", text: "Ends" },
  { column: "age", text: "Age", right: true },
];

export function Table({ shown }: { shown: readonly Row[] }) {
  const all = shown.length > 0 && shown.every((row) => selected.value.has(row.id));
  const toggle = (id: string) => {
    const next = new Set(selected.value);
    if (!next.delete(id)) next.add(id);
    select(next);
  };
  const head = (
    <div class="row head" role="row" aria-rowindex={1}>
      <div role="columnheader" class="cell-check">
        <input
          type="checkbox"
          aria-label="Select all shown instances"
          checked={all}
          disabled={shown.length === 0}
          onChange={() => select(all ? new Set() : new Set(shown.map((row) => row.id)))}
        />
      </div>
      {COLUMNS.map(({ column, text, right }) => {
        const isOn = sorting.value.column === column;
        const direction = isOn ? (sorting.value.descending ? "descending" : "ascending") : "none";
        return (
          <div key={column} role="columnheader" aria-sort={direction} class={right ? "right" : ""}>
            <button type="button" class={`sort ${isOn ? "on" : ""}`} onClick={() => sortBy(column)}>
              {text}
              <Icon name={isOn && sorting.value.descending ? "up" : "down"} size={12} />
            </button>
          </div>
        );
      })}
    </div>
  );
  return (
    <div class="table">
      <VirtualTable count={shown.length} label="Instances" head={head} empty={<NoMatch />}>
        {(index) => {
          const row = shown[index];
          return row ? <Line key={row.id} row={row} index={index} isSelected={selected.value.has(row.id)} toggle={toggle} /> : null;
        }}
      </VirtualTable>
    </div>
  );
}

function Line({ row, index, isSelected, toggle }: { row: Row; index: number; isSelected: boolean; toggle: (id: string) => void }) {
  return (
    <div class={`row ${isSelected ? "marked" : ""}`} role="row" aria-rowindex={index + 2}>
      <div role="cell" class="cell-check">
        <input type="checkbox" aria-label={`Select ${row.name}`} checked={isSelected} onChange={() => toggle(row.id)} />
      </div>
      <div role="cell" class="cell-name">
        <a href={`#/instances/${row.id}`} title={row.name}>{row.name}</a>
      </div>
      <div role="cell" class="cell-status">
        <StatusChip status={row.status} />
        <StatusTags {...row} />
        <span class="muted figures">
          <Since at={row.statusSince} />
        </span>
      </div>
      <div role="cell" class="cell-product">
        {row.productName}
        {row.gpuCount > 1 && <span class="muted"> × {row.gpuCount}</span>}
        {row.region && <span class="on-phone muted"> · {row.region}</span>}
      </div>
      <div role="cell" class="cell-region">{row.region ?? <span class="muted">{row.regions[0] ?? "–"}?</span>}</div>
      <div role="cell" class={`cell-price right figures ${isDown(row.status) ? "muted" : ""}`}>
        {row.billingMode === "SPOT" && <span class="tag">spot</span>}
        {row.pricePerHour ? money(row.pricePerHour) : <span class="muted">–</span>}
      </div>
      <div role="cell" class="cell-health">
        <HealthMark health={isDown(row.status) ? null : row.health} />
      </div>
      <div role="cell" class="cell-ends figures muted">
        {row.spotReclaimAt && !isDown(row.status) ? <Reclaim at={row.spotReclaimAt} /> : row.lifetime?.next && <Until next={row.lifetime.next} />}
        {canExtend(row) && (
          <button type="button" class="button tiny" aria-label={`+1 h for ${row.name}`} onClick={() => extend(row)}>
            +1 h
          </button>
        )}
      </div>
      <div role="cell" class="cell-age right figures muted">
        <Since at={row.createdAt} />
      </div>
    </div>
  );
}

function canExtend({ lifetime, status }: Row): boolean {
  const hasEnd = lifetime?.next && (lifetime.maxDuration !== null || lifetime.deadline !== null);
  return Boolean(hasEnd) && !isDown(status) && may("OPERATOR");
}

// Its last health check no longer applies.
function isDown(status: Row["status"]): boolean {
  return status === "EXITED" || status === "DELETING";
}

function NoMatch() {
  if (!isLoaded.value) return <p class="nothing muted">Loading instances …</p>;
  return (
    <div class="nothing muted">
      <p>No instances match the filter.</p>
      <button
        type="button"
        class="button"
        onClick={() => setParameters({ q: "", status: "" })}
      >
        Clear filter
      </button>
    </div>
  );
}
