// Drives browsers for the Python tests: reads one JSON command per line, writes one JSON response per line.
import { createInterface } from "node:readline";
import { closeAll, isLive, open, otherHosts } from "./browser.mjs";

const browsers = new Map();

const COMMANDS = {
  async open({ name, url, ...options }) {
    const browser = await open(options);
    browsers.set(name, browser);
    await browser.page.goto(url);
  },
  // An open page goes on: it follows its server and draws what changes.
  async closePages() {
    const pages = [...browsers.values()];
    browsers.clear();
    await Promise.all(pages.map((browser) => browser.close()));
  },
  live: ({ page }) => isLive(page),
  goto: ({ page }, { url }) => page.goto(url).then(() => undefined),
  back: ({ page }) => page.goBack().then(() => undefined),
  reload: ({ page }) => page.reload().then(() => undefined),
  wait: ({ page }, { selector, state = "visible" }) => page.locator(selector).first().waitFor({ state }),
  click: ({ page }, { selector }) => page.locator(selector).first().click(),
  fill: ({ page }, { selector, value }) => page.locator(selector).first().fill(value),
  choose: ({ page }, { selector, value }) => page.locator(selector).first().selectOption(value).then(() => undefined),
  press: ({ page }, { keys }) => page.keyboard.press(keys),
  text: ({ page }, { selector }) => page.locator(selector).first().innerText(),
  texts: ({ page }, { selector }) => page.locator(selector).allInnerTexts(),
  evaluate: ({ page }, { script }) => page.evaluate(script),
  shot: ({ page }, { path }) => page.screenshot({ path }).then(() => undefined),
  subscriptions: ({ subscriptions: { open, failed } }) => ({ open: [...open.values()], failed }),
  report: ({ problems, requests }, { url }) => ({ problems, otherHosts: otherHosts(requests, url) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { number, command, ...parameters } = JSON.parse(line);
  let response;
  try {
    const value = await COMMANDS[command](command === "open" ? parameters : browsers.get(parameters.name), parameters);
    response = { number, value: value ?? null };
  } catch (error) {
    response = { number, error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(response)}\n`);
}
await closeAll();
