// Drives browsers for the Python tests: reads one JSON command per line, writes one JSON response per line.
import { createInterface } from "node:readline";
import { isLive, open, otherHosts } from "./browser.mjs";

const browsers = new Map();

const COMMANDS = {
  async open({ name, url, ...options }) {
    const browser = await open(options);
    browsers.set(name, browser);
    await browser.page.goto(url);
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
  const { command, ...parameters } = JSON.parse(line);
  let response;
  try {
    const value = command === "open" ? await COMMANDS.open(parameters) : await COMMANDS[command](browsers.get(parameters.name), parameters);
    response = { value: value ?? null };
  } catch (error) {
    response = { error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(response)}\n`);
}
await Promise.all([...browsers.values()].map((browser) => browser.close()));
