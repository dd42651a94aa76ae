// The fleet’s rows: pages of a snapshot, then events. An instance’s version decides which of two states is newer.
import type { FleetEventsResult, FleetRow, HealthStatus, InstanceStatus } from "../generated/api.ts";

export type Row = FleetRow & { readonly health: HealthStatus | null };
export type FleetEvent = FleetEventsResult["instanceEvents"];

// A new run has no health check yet.
const NEW_RUN: ReadonlySet<InstanceStatus> = new Set(["CREATING", "STARTING", "RESTARTING", "MIGRATING"]);

export class Rows {
  readonly byId = new Map<string, Row>();
  // Deleted while pages were still loading: a later page may still contain them.
  readonly #deleted = new Set<string>();

  // A page is newer than the cursor; events after the cursor may be older or newer than the page.
  load(row: Row): void {
    if (this.#deleted.has(row.id)) return;
    const known = this.byId.get(row.id);
    if (known === undefined || known.version < row.version) this.byId.set(row.id, row);
  }

  apply(event: FleetEvent): void {
    const { instance, health } = event;
    const known = this.byId.get(event.instanceId);
    if (instance?.status === "DELETED") {
      this.byId.delete(event.instanceId);
      this.#deleted.add(event.instanceId);
    } else if (instance !== null && (known === undefined || known.version <= instance.version)) {
      const lastHealth = NEW_RUN.has(instance.status) ? null : (known?.health ?? null);
      this.byId.set(event.instanceId, { ...instance, health: health?.status ?? lastHealth });
    } else if (health !== null && instance === null && known !== undefined) {
      this.byId.set(event.instanceId, { ...known, health: health.status });
    }
  }

  // All pages are loaded: no page can bring a deleted instance back.
  finishLoading(): void {
    this.#deleted.clear();
  }
}
