// Browsers at the service of a test: one JSON command a line comes in, one JSON answer a line goes out.
import { createInterface } from "node:readline";
import { isLive, open, strangers } from "./browser.mjs";

const browsers = new Map();

const COMMANDS = {
  async open({ name, url, ...options }) {
    const browser = await open(options);
    browsers.set(name, browser);
    await browser.page.goto(url);
  },
  live: ({ page }) => isLive(page),
  goto: ({ page }, { url }) => page.goto(url).then(() => undefined),
  wait: ({ page }, { selector, state = "visible" }) => page.locator(selector).first().waitFor({ state }),
  click: ({ page }, { selector }) => page.locator(selector).first().click(),
  fill: ({ page }, { selector, value }) => page.locator(selector).first().fill(value),
  choose: ({ page }, { selector, value }) => page.locator(selector).first().selectOption(value).then(() => undefined),
  press: ({ page }, { keys }) => page.keyboard.press(keys),
  text: ({ page }, { selector }) => page.locator(selector).first().innerText(),
  texts: ({ page }, { selector }) => page.locator(selector).allInnerTexts(),
  evaluate: ({ page }, { script }) => page.evaluate(script),
  shot: ({ page }, { path }) => page.screenshot({ path }).then(() => undefined),
  report: ({ problems, requests }, { url }) => ({ problems, strangers: strangers(requests, url) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  let answer;
  try {
    const value = command === "open" ? await COMMANDS.open(given) : await COMMANDS[command](browsers.get(given.name), given);
    answer = { value: value ?? null };
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await Promise.all([...browsers.values()].map((browser) => browser.close()));
