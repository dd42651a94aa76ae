import assert from "node:assert/strict";
import { test } from "node:test";
import { backoff } from "../src/api/backoff.ts";
import { brief, duration, explain, money, perMonth, seconds, span, words } from "../src/format.ts";
import { barsOf } from "../src/live/bars.ts";
import { BLANK, createInput, draftOf, nextName, type Original, quoteInput, readPairs, readPorts } from "../src/live/draft.ts";
import { endOf, nextWords, presetInput } from "../src/live/lifetime.ts";
import { burnOf, visibleRows, groupOf } from "../src/live/filter-sort.ts";
import type { Row } from "../src/live/rows.ts";
import { type Status, troubles } from "../src/live/troubles.ts";
import { roundUp } from "../src/ui/bar-chart.tsx";

const row = (name: string, more: Partial<Row> = {}): Row => ({
  id: `inst_${name}`, name, status: "READY", statusSince: "2026-01-01T00:00:00Z", statusReason: null, version: 1,
  productName: "RTX 4090 24GB", gpuCount: 1, region: "AS-SGP-02", regions: [], billingMode: "SPOT", pricePerHour: null,
  isBilled: true, isDegraded: false, runningPricePerHour: null,
  createdAt: "2026-01-01T00:00:00Z", spotReclaimAt: null, stale: false, actions: [], labels: [], failure: null,
  lifetime: null, health: null, ...more,
});
const fleet = (...rows: Row[]) => new Map(rows.map((each) => [each.id, each]));
const names = (rows: readonly Row[]) => rows.map((each) => each.name);

test("every word of a filter must match, labels included", () => {
  const rows = fleet(row("a", { labels: [{ key: "team", value: "search" }] }), row("b"), row("c", { region: "CN-HK-01" }));
  const by = (filter: string) => names(visibleRows(rows, filter, "all", { column: "name", descending: false }));
  assert.deepEqual(by("team=search"), ["a"]);
  assert.deepEqual(by("4090 hk"), ["c"]);
  assert.deepEqual(by("nothing"), []);
});

test("ties are broken by name in both directions", () => {
  const rows = fleet(row("b"), row("a"), row("c", { pricePerHour: { amountMicros: 5, currency: "USD" } }));
  assert.deepEqual(names(visibleRows(rows, "", "all", { column: "price", descending: true })), ["c", "a", "b"]);
  assert.deepEqual(names(visibleRows(rows, "", "all", { column: "price", descending: false })), ["a", "b", "c"]);
});

test("the burn rate is that of the rows that are billed", () => {
  const price = (amountMicros: number) => ({ amountMicros, currency: "USD" });
  const rows = [
    row("a", { pricePerHour: price(350_000) }),
    row("b", { pricePerHour: price(150_000), status: "STARTING" }),
    row("c", { isBilled: false, status: "EXITED", runningPricePerHour: price(900_000) }),
    row("d"),
  ];
  assert.deepEqual(burnOf(rows), { billed: 3, unpriced: 1, price: price(500_000) });
  assert.deepEqual(burnOf(rows.slice(0, 1)), { billed: 1, unpriced: 0, price: price(350_000) });
  assert.deepEqual(burnOf([]), { billed: 0, unpriced: 0, price: price(0) });
});

test("ascending age puts the newest first", () => {
  const rows = fleet(row("old"), row("new", { createdAt: "2026-02-01T00:00:00Z" }));
  assert.deepEqual(names(visibleRows(rows, "", "all", { column: "age", descending: false })), ["new", "old"]);
});

test("the previous result only affects the speed", () => {
  const by = { column: "name", descending: false } as const;
  const before = visibleRows(fleet(row("a"), row("b"), row("gone")), "", "all", by);
  const now = fleet(row("c"), row("b", { status: "FAILED" }), row("a"));
  const after = visibleRows(now, "", "all", by, before);
  assert.deepEqual(names(after), ["a", "b", "c"]);
  assert.equal(after[1]?.status, "FAILED");
  assert.deepEqual(names(visibleRows(now, "", "failed", by, after)), ["b"]);
});

test("every status belongs to one group", () => {
  assert.equal(groupOf("READY"), "ready");
  assert.equal(groupOf("HEALTH_CHECKING"), "pending");
  assert.equal(groupOf("EXITED"), "stopped");
  assert.equal(groupOf("FAILED"), "failed");
});

test("ports default to http, and an invalid port is left to the server to reject", () => {
  assert.deepEqual(readPorts("80, 22/tcp x"), [{ port: 80, type: "http" }, { port: 22, type: "tcp" }, { port: 0, type: "http" }]);
});

test("a value may contain an equals sign", () => {
  assert.deepEqual(readPairs("A=1\n\nURL=x?a=b\nB"), [
    { key: "A", value: "1" }, { key: "URL", value: "x?a=b" }, { key: "B", value: "" },
  ]);
});

test("empty fields are not sent, and money is in micros", () => {
  assert.deepEqual(quoteInput({ ...BLANK, productName: "P" }), { productName: "P", gpuCount: 1, billing: "SPOT_THEN_ON_DEMAND" });
  const input = createInput({ ...BLANK, name: " n ", productName: "P", source: "image", image: "i", maxPrice: "0,35" }, "key");
  assert.deepEqual(input.maxHourlyPrice, { amountMicros: 350_000 });
  assert.equal(input.name, "n");
  assert.equal(input.image, "i");
  assert.equal(input.templateId, undefined);
  assert.equal(input.idempotencyKey, "key");
});

test("delays double up to a limit, with jitter", () => {
  assert.equal(backoff(0, 1), 400);
  assert.equal(backoff(3, 1), 3200);
  assert.equal(backoff(100, 1), 15_000);
  assert.equal(backoff(100, 0), 7_500);
});

test("numbers and durations are formatted", () => {
  assert.equal(money({ amountMicros: 199_620, currency: "USD" }), "$0.200");
  assert.equal(perMonth({ amountMicros: 1_610_000, currency: "USD" }), "$1,175");
  assert.equal(duration(3_661_000), "1h 1m");
  assert.equal(duration(-5), "0s");
  assert.equal(brief(471), "471 ms");
  assert.equal(seconds(null), "–");
  assert.equal(seconds(0.174), "174 ms");
  assert.equal(words("HEALTH_CHECKING"), "Health checking");
});

test("an error is shown with what can be done about it", () => {
  assert.equal(explain({ message: "No such image.", help: "Check the tag." }), "No such image. Check the tag.");
  assert.equal(explain({ message: "No such image.", help: null }), "No such image.");
  assert.equal(explain({ message: "No such image." }), "No such image.");
});

const ends = (at: string, action = "STOP", reason = "MAX_DURATION") =>
  ({ lifetime: { next: { at, action, reason } } }) as unknown as Partial<Row>;

test("instances without an end are last in both directions, and a start is no end", () => {
  const rows = fleet(row("never"), row("late", ends("2026-01-02T00:00:00Z")), row("soon", ends("2026-01-01T00:00:00Z")), row("starts", ends("2026-01-01T00:00:00Z", "START")));
  assert.deepEqual(names(visibleRows(rows, "", "all", { column: "ends", descending: false })), ["soon", "late", "never", "starts"]);
  assert.deepEqual(names(visibleRows(rows, "", "all", { column: "ends", descending: true })), ["late", "soon", "never", "starts"]);
  assert.equal(endOf(null), null);
});

test("the next action counts down", () => {
  const at = Date.parse("2026-01-01T00:00:00Z");
  const next = { at: "2026-01-01T00:12:00Z", action: "STOP", reason: "MAX_DURATION" };
  assert.equal(nextWords(next, at), "stops in 12m 0s");
  assert.equal(nextWords(next, at + 3_600_000), "stops now");
  assert.equal(nextWords({ ...next, action: "DELETE", reason: "IDLE" }, at), "deletes if idle for 12m 0s");
});

test("a length that someone chose has no zeros at its end", () => {
  assert.deepEqual([1800, 14400, 86400, 5400, 90].map((each) => span(each * 1000)), ["30m", "4h", "1d", "1h 30m", "1m 30s"]);
});

test("presets are what the server takes", () => {
  assert.deepEqual(presetInput("4h", 0), { maxDuration: 14400 });
  assert.deepEqual(presetInput("idle", 0), { idle: { window: 1800 } });
  for (const hour of [9, 18, 23]) {
    const now = new Date(2026, 5, 1, hour).getTime();
    const { deadline } = presetInput("18:00", now);
    assert.equal(new Date(deadline ?? 0).getHours(), 18);
    const wait = Date.parse(deadline ?? "") - now;
    assert.ok(wait > 0 && wait <= 24 * 3_600_000);
  }
});

test("a copy takes everything but secrets and an end that has passed", () => {
  const original: Original = {
    id: "inst_1", name: "trainer-9", kind: "GPU", productName: "H100 SXM 80GB", gpuCount: 2, image: "nginx", templateId: null,
    command: null, entrypoint: "/run", ports: [{ port: 80, type: "http" }], tools: [{ name: "SSH", port: 22 }], billing: "SPOT",
    region: "US-CA-06", regions: ["AS-SGP-02"], rootfsSizeGb: 60, minCudaVersion: null, readyTimeout: null,
    maxHourlyPrice: { amountMicros: 3_500_000, currency: "USD" }, labels: [{ key: "a", value: "b" }],
    env: [{ key: "X", value: "1", secret: false }, { key: "KEY", value: null, secret: true }], webhook: null,
    lifetime: {
      maxDuration: null, deadline: "2020-01-01T00:00:00Z", heartbeat: null, onEnd: "STOP", deleteAfterStopped: null, warnBefore: 600,
      idle: null, schedule: null,
    },
    recovery: {
      on: ["LOSS"], steps: ["SAME", "RELOCATE"], allowDataLoss: true, regions: ["AS-SGP-02"], billing: "SAME", giveUpAfter: 5400,
      replaceBeforeReclaim: true, drain: 0, incident: null,
    },
  };
  assert.deepEqual(createInput(draftOf(original), "k"), {
    name: "trainer-10", productName: "H100 SXM 80GB", gpuCount: 2, image: "nginx", ports: [{ port: 80, type: "http" }], billing: "SPOT",
    region: "US-CA-06", rootfsSizeGb: 60, maxHourlyPrice: { amountMicros: 3_500_000 }, labels: [{ key: "a", value: "b" }],
    env: [{ key: "X", value: "1" }], entrypoint: "/run", tools: [{ name: "SSH", port: 22 }], idempotencyKey: "k",
    recovery: {
      on: ["LOSS"], steps: ["SAME", "RELOCATE"], allowDataLoss: true, regions: ["AS-SGP-02"], billing: "SAME", giveUpAfter: 5400,
      replaceBeforeReclaim: true, drain: 0,
    },
  });
  assert.equal(nextName("trainer"), "trainer-2");
});

test("a machine without GPUs is not requested as spot, and a network decides the region", () => {
  const draft = {
    ...BLANK, name: "n", kind: "CPU", productName: "CPU 4C 8GB", billing: "SPOT", minCudaVersion: "12.4", source: "image", image: "i",
    registryAuthId: "reg_1", networkId: "net_1", region: "US-CA-06", tools: [{ name: "JUPYTER" }],
  } as const;
  assert.deepEqual(createInput(draft, "k"), {
    name: "n", kind: "CPU", productName: "CPU 4C 8GB", billing: "ON_DEMAND", image: "i", registryAuthId: "reg_1", networkId: "net_1",
    tools: [{ name: "JUPYTER" }], idempotencyKey: "k",
  });
  // A template has a credential of its own.
  assert.equal(quoteInput({ ...draft, source: "template", templateId: "t" }).registryAuthId, undefined);
});

test("a day has the parts of the largest groups and the rest", () => {
  const money = (amountMicros: number) => ({ amountMicros, currency: "USD" });
  const parts = { total: money(90_000), groups: [{ key: "A", amount: money(50_000), paidTime: 1 }], byDay: [{ day: "2026-03-02", key: "A", amount: money(50_000) }] };
  const days = { groups: [{ key: "2026-03-02", amount: money(90_000) }] };
  const bars = barsOf({ parts, days, instances: { groups: [] }, tokens: { groups: [] } }, "2026-03-01T00:00:00Z", Date.parse("2026-03-02T09:00:00Z"));
  assert.deepEqual(bars.map((bar) => [bar.day, bar.total, bar.parts.map((part) => part.micros)]), [
    ["2026-03-01", 0, []],
    ["2026-03-02", 90_000, [50_000, 40_000]],
  ]);
  assert.deepEqual([roundUp(63), roundUp(100), roundUp(210)], [100, 100, 250]);
});

test("each thing that is wrong with the server or its provider is named", () => {
  const well: Status = {
    workers: 1,
    provider: { host: "h", isSimulator: false, breaker: "CLOSED", retryAt: null, suspended: [] },
    eventLog: { hasSequencer: true, isFollowed: true },
  };
  const of = (part: Partial<Status>) => troubles({ ...well, ...part }).map((each) => [each.key, each.tone]);
  const at = "2026-01-01T00:00:00Z";
  assert.deepEqual(of({}), []);
  assert.deepEqual(of({ provider: { ...well.provider, breaker: "OPEN", retryAt: at } }), [["provider", "bad"]]);
  assert.equal(troubles({ ...well, provider: { ...well.provider, breaker: "OPEN", retryAt: at } })[0]?.until, at);
  assert.deepEqual(of({ provider: { ...well.provider, breaker: "HALF_OPEN" } }), [["provider", "warning"]]);
  assert.deepEqual(of({ provider: { ...well.provider, suspended: ["GET /products"] } }), [["provider", "warning"]]);
  assert.deepEqual(of({ workers: 0, eventLog: { hasSequencer: false, isFollowed: true } }), [["workers", "bad"], ["events", "bad"]]);
  assert.deepEqual(of({ eventLog: { hasSequencer: true, isFollowed: false } }), [["events", "bad"]]);
});
