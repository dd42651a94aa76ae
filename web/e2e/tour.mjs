// Every view, in both themes, wide and narrow: what goes wrong, what axe-core finds, and a picture where one is wanted.
//   node e2e/tour.mjs URL [--shots FOLDER] [--ready ID] [--failed ID]
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { isLive, open, strangers } from "./browser.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { shots: { type: "string" }, ready: { type: "string" }, failed: { type: "string" } },
});
const [base] = positionals;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const VIEWS = [
  { name: "fleet", hash: "#/", until: ".row:not(.head)" },
  { name: "instance-ready", hash: `#/instances/${values.ready}`, until: ".timeline li" },
  { name: "instance-failed", hash: `#/instances/${values.failed}`, until: ".banner.bad", tabs: ["operations", "webhooks", "events"] },
  { name: "create", hash: "#/create", until: ".candidates li" },
  { name: "market", hash: "#/market", until: ".offer" },
  { name: "work", hash: "#/work", until: ".kinds tbody tr" },
  { name: "settings", hash: "#/settings", until: ".facts .chip" },
].filter((view) => !view.hash.endsWith("undefined"));

if (values.shots) mkdirSync(values.shots, { recursive: true });
const report = { visited: [], problems: [], strangers: [], axe: [], overflowing: [] };
await Promise.all([tour(1280), tour(390)]);
console.log(JSON.stringify(report, null, 2));

async function tour(width) {
  for (const theme of ["light", "dark"]) {
    const browser = await open({ width, height: width === 390 ? 844 : 860, theme });
    const { page } = browser;
    await page.goto(`${base}/`);
    await isLive(page);
    for (const view of VIEWS) {
      await page.goto(`${base}/${view.hash}`);
      await page.locator(view.until).first().waitFor();
      await look(view.name);
      for (const tab of view.tabs ?? []) {
        await page.locator(`[data-tab="${tab}"]`).click();
        await page.locator(".tab-panel :is(.panel, .empty)").first().waitFor();
        await look(`${view.name}-${tab}`);
      }
    }
    report.problems.push(...browser.problems);
    report.strangers.push(...strangers(browser.requests, base));
    await browser.close();

    async function look(name) {
      const label = `${name} ${width} ${theme}`;
      report.visited.push(label);
      // Toasts come and go, and are looked at elsewhere.
      await page.evaluate(() => document.fonts.ready);
      const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (excess > 0) report.overflowing.push(`${label}: ${excess} px`);
      // Colours differ by theme and not by width, and looking costs a second each.
      if (width === 390 && theme === "dark") return shoot(name);
      await page.evaluate(axe);
      const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      for (const each of found.violations) {
        const where = each.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} (${node.any[0]?.message ?? node.html.slice(0, 120)})`);
        report.axe.push({ view: label, id: each.id, impact: each.impact, where });
      }
      await shoot(name);
    }

    async function shoot(name) {
      if (values.shots) await page.screenshot({ path: join(values.shots, `${name}-${width}-${theme}.png`) });
    }
  }
}
