// Measures the fleet page under load: long tasks, memory, and response times of user actions; and two windows with charts.
//   node perf/page.mjs URL TOKEN SECONDS INSTANCES ID
import { closeAll, isLive, open } from "../e2e/browser.mjs";

const [base, token, seconds, instances, id] = [process.argv[2], process.argv[3], Number(process.argv[4]), Number(process.argv[5]), process.argv[6]];
const CHARTS = [
  { name: "costs", hash: "#/costs", until: ".bar-chart rect" },
  { name: "usage", hash: `#/instances/${id}/usage`, until: ".line-chart polyline" },
];
const SAMPLE = 10_000;

const { page, session, problems } = await measured();
let frames = 0;
page.on("websocket", (socket) => socket.on("framereceived", () => frames++));

const began = Date.now();
await page.goto(`${base}/`);
await isLive(page);
const firstRows = await page.locator(".row:not(.head)").first().waitFor().then(() => Date.now() - began);
await page.locator(`.bulk:has-text("${instances.toLocaleString("en-US")} instances")`).waitFor({ timeout: 600_000 });
const allRows = Date.now() - began;
const loading = await longest();
const charts = [];
for (const { name, hash, until } of CHARTS) {
  const window = await measured();
  await window.page.goto(`${base}/${hash}`);
  await isLive(window.page);
  await window.page.locator(until).first().waitFor({ state: "attached" });
  charts.push({ name, until, window, heapMb: [] });
}
await page.evaluate(() => globalThis.longTasks.splice(0));
for (const { window } of charts) await window.page.evaluate(() => globalThis.longTasks.splice(0));
process.stderr.write(`first rows after ${firstRows} ms, all ${instances} after ${allRows} ms\n`);

const samples = [];
const answers = [];
const end = Date.now() + seconds * 1000;
let last = { frames, at: Date.now() };
let round = 0;
while (Date.now() < end) {
  answers.push(...(await measureActions(round++)));
  await page.waitForTimeout(Math.max(0, Math.min(SAMPLE, end - Date.now())));
  const heapMb = await heapOf(session);
  for (const chart of charts) chart.heapMb.push(await heapOf(chart.window.session));
  const { nodes } = await session.send("Memory.getDOMCounters");
  const now = Date.now();
  samples.push({ heapMb, nodes, perSecond: ((frames - last.frames) / (now - last.at)) * 1000 });
  last = { frames, at: now };
  process.stderr.write(`${JSON.stringify(samples.at(-1))} longest ${(await longest()).toFixed(0)} ms\n`);
}
const tasks = await tasksOf(page);
const shown = {};
for (const { name, until, window, heapMb } of charts) {
  if ((await window.page.locator(until).count()) === 0) problems.push(`${name}: the chart is gone`);
  problems.push(...window.problems);
  shown[name] = { tasks: await tasksOf(window.page), heapMb };
}
const { metrics } = await session.send("Performance.getMetrics");
console.log(
  JSON.stringify({
    firstRows, allRows, loadingLongestTask: loading, samples, answers, tasks, charts: shown, problems,
    busy: metrics.find((each) => each.name === "TaskDuration").value,
  }),
);
await closeAll();

// A window that is logged in and records its long tasks.
async function measured() {
  const { page, context, problems } = await open({ width: 1280, height: 800 });
  await page.addInitScript((secret) => {
    sessionStorage.setItem("pilotlight:token", secret);
    globalThis.longTasks = [];
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) globalThis.longTasks.push({ at: entry.startTime, took: entry.duration });
    }).observe({ type: "longtask", buffered: true });
  }, token);
  const session = await context.newCDPSession(page);
  await session.send("HeapProfiler.enable");
  await session.send("Performance.enable");
  return { page, session, problems };
}

async function heapOf(session) {
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  return usedSize / 2 ** 20;
}

async function tasksOf(page) {
  return page.evaluate(() => globalThis.longTasks.map((each) => each.took));
}

async function longest() {
  return page.evaluate(() => Math.max(0, ...globalThis.longTasks.map((each) => each.took)));
}

// Scrolls, sorts and filters; measures the time until the next frame.
async function measureActions(number) {
  const times = [];
  for (const name of ["scroll", "sort", "filter"]) {
    const took = await page.evaluate(
      ([action, at]) => {
        const start = performance.now();
        if (action === "scroll") document.querySelector(".virtual").scrollTo(0, (at * 4000) % 200_000);
        if (action === "sort") document.querySelectorAll(".sort")[at % 7].click();
        if (action === "filter") {
          const field = document.querySelector("input[type=search]");
          field.value = at % 2 ? "" : "gpu-1";
          field.dispatchEvent(new Event("input", { bubbles: true }));
        }
        return new Promise((resolve) => {
          requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
        });
      },
      [name, number],
    );
    times.push({ name, took });
  }
  return times;
}
