import assert from "node:assert/strict";
import { test } from "node:test";
import { type FleetEvent, type Row, Rows } from "../src/live/rows.ts";

const row = (version: number, more: Partial<Row> = {}): Row => ({
  id: "inst_1", name: "web", status: "READY", statusSince: "2026-01-01T00:00:00Z", statusReason: null, version,
  productName: "RTX 4090 24GB", gpuCount: 1, region: "AS-SGP-02", regions: [], billingMode: "SPOT", pricePerHour: null,
  isBilled: true, isDegraded: false, runningPricePerHour: null,
  createdAt: "2026-01-01T00:00:00Z", spotReclaimAt: null, stale: false, actions: [], labels: [], failure: null,
  health: null, ...more,
});

const event = (version: number, more: Partial<FleetEvent> = {}): FleetEvent => {
  const { health: _health, ...instance } = row(version);
  return {
    cursor: `c${version}`, type: "instance.changed", occurredAt: "2026-01-01T00:00:00Z", instanceId: "inst_1",
    previousStatus: null, status: null, instance, operation: null, health: null, ...more,
  };
};

test("a page that is older than an event changes nothing", () => {
  const rows = new Rows();
  rows.apply(event(5));
  rows.load(row(4, { name: "old" }));
  assert.equal(rows.byId.get("inst_1")?.name, "web");
  assert.equal(rows.byId.get("inst_1")?.version, 5);
});

test("an event that is older than the page changes nothing", () => {
  const rows = new Rows();
  rows.load(row(7, { name: "new" }));
  rows.apply(event(6));
  assert.equal(rows.byId.get("inst_1")?.version, 7);
  assert.equal(rows.byId.get("inst_1")?.name, "new");
});

test("an instance deleted while pages load does not return with a later page", () => {
  const rows = new Rows();
  const deleted = event(3);
  rows.apply({ ...deleted, instance: { ...deleted.instance!, status: "DELETED" } });
  rows.load(row(2));
  assert.equal(rows.byId.size, 0);
});

test("a new run clears the health of the last one, other events keep it", () => {
  const rows = new Rows();
  rows.load(row(1, { health: "HEALTHY" }));
  rows.apply(event(2));
  assert.equal(rows.byId.get("inst_1")?.health, "HEALTHY");
  const starting = event(3);
  rows.apply({ ...starting, instance: { ...starting.instance!, status: "STARTING" } });
  assert.equal(rows.byId.get("inst_1")?.health, null);
  rows.apply(event(4, { health: { status: "PARTIAL" } }));
  assert.equal(rows.byId.get("inst_1")?.health, "PARTIAL");
});

test("an event about an operation alone leaves the row unchanged", () => {
  const rows = new Rows();
  rows.load(row(1));
  rows.apply(event(1, { instance: null }));
  assert.equal(rows.byId.get("inst_1")?.version, 1);
});
