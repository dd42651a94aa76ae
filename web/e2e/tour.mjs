// Visits every view in both themes, wide and narrow; reports console problems and axe-core's findings, and can take screenshots.
//   node e2e/tour.mjs URL [--shots FOLDER [--height PIXELS]] [--ready ID] [--failed ID] [--died ID]
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { closeAll, isLive, open, otherHosts } from "./browser.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { shots: { type: "string" }, height: { type: "string", default: "6000" }, ready: { type: "string" }, failed: { type: "string" }, died: { type: "string" } },
});
const [base] = positionals;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const VIEWS = [
  { name: "fleet", hash: "#/", until: ".row:not(.head)" },
  { name: "instance-ready", hash: `#/instances/${values.ready}`, until: ".timeline li", tabs: ["logs", "usage", "webhooks", "edit"] },
  { name: "instance-died", hash: `#/instances/${values.died}`, until: ".last-lines" },
  { name: "instance-failed", hash: `#/instances/${values.failed}`, until: ".banner.bad", tabs: ["operations", "webhooks", "events"] },
  { name: "create", hash: "#/create", until: ".candidates li" },
  { name: "duplicate", hash: `#/create?like=${values.ready}`, until: ".banner + .create .candidates li" },
  { name: "costs", hash: "#/costs", until: ".budget" },
  { name: "market", hash: "#/market", until: ".offer" },
  { name: "market-offer", hash: "#/market?offer=RTX+4090+24GB%40AS-SGP-02", until: ".sparkline" },
  { name: "volumes", hash: "#/volumes", until: ".volumes tbody tr" },
  { name: "account", hash: "#/account", until: ".tab-panel tbody tr", tabs: values.shots ? ["registries", "networks", "prewarms", "images", "machines"] : ["registries", "machines"] },
  { name: "events", hash: "#/events", until: ".tab-panel tbody tr", tabs: ["webhooks"] },
  { name: "jobs", hash: "#/jobs", until: ".kinds tbody tr" },
  { name: "settings", hash: "#/settings", until: ".facts .chip" },
].filter((view) => !view.hash.endsWith("undefined"));

if (values.shots) mkdirSync(values.shots, { recursive: true });
const report = { visited: [], problems: [], otherHosts: [], axe: [], overflowing: [] };
await Promise.all([tour(1280), tour(390)]);
await closeAll();
console.log(JSON.stringify(report, null, 2));

async function tour(width) {
  const browser = await open({ width, height: width === 390 ? 844 : 860 });
  const { page } = browser;
  await page.goto(`${base}/`);
  await isLive(page);
  for (const view of VIEWS) {
    await page.goto(`${base}/${view.hash}`);
    await page.locator(view.until).first().waitFor();
    await inspect(view.name);
    for (const tab of view.tabs ?? []) {
      await page.locator(`[data-tab="${tab}"]`).click();
      await page.locator(`[data-tab="${tab}"][aria-selected="true"]`).waitFor(); // not what the former tab shows
      await page.locator(".tab-panel :is(.panel, .empty)").first().waitFor();
      await inspect(`${view.name}-${tab}`);
    }
  }
  report.problems.push(...browser.problems);
  report.otherHosts.push(...otherHosts(browser.requests, base));
  await browser.close();

  // In both themes without loading it again: the page follows the system's theme by its styles alone.
  async function inspect(name) {
    await page.evaluate(() => document.fonts.ready);
    await page.getByText(/(Loading|reading) …/).first().waitFor({ state: "detached" });
    for (const theme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: theme });
      const label = `${name} ${width} ${theme}`;
      report.visited.push(label);
      const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (excess > 0) report.overflowing.push(`${label}: ${excess} px`);
      const below = await page.evaluate(() => document.documentElement.scrollHeight - document.documentElement.clientHeight);
      if (below > 0) report.overflowing.push(`${label}: ${below} px below the window, beside the page's own scrolling`);
      const hanging = await page.evaluate(() =>
        [...document.querySelectorAll(".panel:not(.scroll-x)")]
          .map((panel) => ({ title: panel.querySelector("h2")?.textContent ?? "", excess: panel.scrollWidth - panel.clientWidth }))
          .filter(({ excess }) => excess > 0),
      );
      report.overflowing.push(...hanging.map(({ title, excess }) => `${label}: ${excess} px beside the panel ${title}`));
      // Colours depend on the theme only, and each axe run takes a second.
      if (width === 1280 || theme === "light") await check(label, theme);
      if (values.shots) await shoot(`${name}-${width}-${theme}.png`);
    }
    await page.emulateMedia({ colorScheme: "light" });
  }

  // The whole page, in a window as high as it needs, unless it is very long.
  async function shoot(file) {
    const { height } = page.viewportSize();
    const below = await page.evaluate(() => Math.max(0, ...[...document.querySelectorAll("main, .virtual")].map((each) => each.scrollHeight - each.clientHeight)));
    const whole = Math.max(height, Math.min(height + below, Number(values.height)));
    await page.setViewportSize({ width, height: whole });
    await page.screenshot({ path: join(values.shots, file) });
    await page.setViewportSize({ width, height });
  }

  async function check(label, theme) {
    await page.evaluate(axe);
    // The dark theme differs in its colours only.
    const only = theme === "dark" ? { runOnly: ["color-contrast"] } : {};
    const results = await page.evaluate((more) => globalThis.axe.run(document, { resultTypes: ["violations"], ...more }), only);
    for (const each of results.violations) {
      const where = each.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} (${node.any[0]?.message ?? node.html.slice(0, 120)})`);
      report.axe.push({ view: label, id: each.id, impact: each.impact, where });
    }
  }
}
