// The fleet as it is known here: a snapshot, then every change. Versions tell what is news and what is not.
import type { FleetEventsResult, FleetRow, HealthStatus, InstanceStatus } from "../generated/api.ts";

export type Row = FleetRow & { readonly health: HealthStatus | null };
export type FleetEvent = FleetEventsResult["instanceEvents"];

// A new run has not been probed yet.
const NEW_RUN: ReadonlySet<InstanceStatus> = new Set(["CREATING", "STARTING", "RESTARTING", "MIGRATING"]);

export class Rows {
  readonly byId = new Map<string, Row>();
  // Deleted while pages were still being read: a page may show them once more, as they were.
  readonly #gone = new Set<string>();

  // A page is as of some moment after the cursor; events behind the cursor may be older or newer than it.
  load(row: Row): void {
    if (this.#gone.has(row.id)) return;
    const known = this.byId.get(row.id);
    if (known === undefined || known.version < row.version) this.byId.set(row.id, row);
  }

  apply(event: FleetEvent): void {
    const { instance, health } = event;
    const known = this.byId.get(event.instanceId);
    if (instance?.status === "DELETED") {
      this.byId.delete(event.instanceId);
      this.#gone.add(event.instanceId);
    } else if (instance !== null && (known === undefined || known.version <= instance.version)) {
      const verdict = NEW_RUN.has(instance.status) ? null : (known?.health ?? null);
      this.byId.set(event.instanceId, { ...instance, health: health?.status ?? verdict });
    } else if (health !== null && instance === null && known !== undefined) {
      this.byId.set(event.instanceId, { ...known, health: health.status });
    }
  }

  // Pages are read: nobody will show what is gone any more.
  settle(): void {
    this.#gone.clear();
  }
}
