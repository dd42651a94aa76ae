/**
 * Uses GraphiQL in Chromium with all other hosts blocked, and prints a report as JSON.
 *
 *     node test/visit.mjs http://127.0.0.1:8000/graphql pl_... folder-for-screenshots
 */
import { join } from "node:path";

import { chromium } from "playwright-core";

const [address, token, shots] = process.argv.slice(2);
const TIMEOUT = 30_000;
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // Two hidden pages for the address bar of each window, which take more CPU than the page itself.
  "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding",
  // No other host name resolves, also for requests of the browser itself.
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

const sent = []; // frames sent over WebSockets
const report = { elsewhere: [], refused: [], console: [], violations: [], tabs: [], answers: {}, watched: [], withoutToken: {} };

// launch() uses a temporary profile.
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: FLAGS,
});
try {
  await withTheToken(await open());
  await narrow(await open({}, 390));
  await withoutToken(await open({ "x-forwarded-for": "192.0.2.1" }));
} finally {
  await browser.close();
}
console.log(JSON.stringify(report));

async function withTheToken(page) {
  report.tabs = await titles(page);
  // The very first press of a fresh profile, on the tab that is open.
  await page.getByRole("button", { name: /Execute query/ }).click();
  report.answers.create = await shows(page, "Create", "createInstance");
  await page.screenshot({ path: join(shots, "create.png") });
  report.answers.quote = await run(page, "Quote", "candidates");
  await page.screenshot({ path: join(shots, "quote.png") });

  await choose(page, "Watch");
  await page.getByRole("button", { name: /Execute query/ }).click();
  await page.getByRole("button", { name: /Stop query/ }).waitFor();
  await subscribed(page);
  await create("made-elsewhere");
  const deadline = Date.now() + 2 * TIMEOUT;
  while (!report.watched.includes("operation.finished") && Date.now() < deadline) {
    const shown = await result(page);
    const type = /"type": "([a-z._]+)"/.exec(shown)?.[1];
    if (type && type !== report.watched.at(-1)) report.watched.push(type);
    report.answers.watch = shown; // replaced by the next event of either instance
    await page.waitForTimeout(10);
  }
  await page.screenshot({ path: join(shots, "watch.png") });
  await page.getByRole("button", { name: /Stop query/ }).click();

  for (const [tab, word] of [
    ["Start", "startInstance"], ["Fleet", "items"], ["Spend", "paidTime"], ["Lifetimes", "instances"], ["Market", "products"],
    ["Logs", "instanceLog"], ["Jobs", "jobs"],
  ]) {
    report.answers[tab.toLowerCase()] = await run(page, tab, word);
  }
  await page.screenshot({ path: join(shots, "jobs.png") });
  await runAtOnce(page);
  report.back = await page.getByRole("link", { name: /Pilotlight/ }).getAttribute("href");
  await page.close();
}

/** Runs tabs at once after choosing them, before GraphiQL has parsed their text. */
async function runAtOnce(page) {
  for (const [tab, word] of [["Quote", "candidates"], ["Fleet", "counts"], ["Jobs", "jobs"], ["Quote", "candidates"]]) {
    await page.evaluate(chooseAndRun, tab);
    report.answers.hurried = await shows(page, tab, word);
  }
  await page.evaluate(chooseAndRun, "Watch");
  await page.getByRole("button", { name: /Stop query/ }).waitFor();
  await create("watched-in-a-hurry");
  report.answers.hurriedWatch = await shows(page, "Watch", "instanceEvents");
  await page.getByRole("button", { name: /Stop query/ }).click();
}

/** Runs inside the page, so that nothing happens between the two clicks. */
function chooseAndRun(tab) {
  const chosen = [...document.querySelectorAll(".graphiql-tab")].find((each) => each.textContent.includes(tab));
  chosen.querySelector("button").click();
  document.querySelector(".graphiql-execute-button").click();
}

/** The first press on a phone. Of the result only a few letters fit, so the response itself is read. */
async function narrow(page) {
  const answered = page.waitForResponse((response) => response.request().postData()?.includes("mutation Create"));
  await page.getByRole("button", { name: /Execute query/ }).click();
  report.answers.narrow = await (await answered).text();
  await page.screenshot({ path: join(shots, "narrow.png") });
  await page.close();
}

/** If the server provides no token, the page has a field for it. */
async function withoutToken(page) {
  const field = page.getByLabel("Token");
  report.withoutToken.asked = await field.isVisible();
  await field.fill(token);
  await page.getByRole("button", { name: "Use" }).click();
  report.withoutToken.answer = await run(page, "Fleet", "counts");
  await page.screenshot({ path: join(shots, "token.png") });
  await page.close();
}

async function open(headers = {}, width = 1440) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, extraHTTPHeaders: headers });
  page.setDefaultTimeout(TIMEOUT);
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => {
      console.error(`POLICY ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
    });
  });
  const host = new URL(address).host;
  await page.route("**/*", (route) => {
    const url = new URL(route.request().url());
    if (url.protocol === "data:" || url.host === host) return route.continue();
    report.elsewhere.push(url.href);
    return route.abort();
  });
  page.on("websocket", (socket) => {
    if (new URL(socket.url()).host !== host) report.elsewhere.push(socket.url());
    socket.on("framesent", ({ payload }) => sent.push(payload));
  });
  page.on("console", (message) => {
    const text = `${message.text()} (${message.location().url})`;
    if (text.startsWith("POLICY")) report.violations.push(text);
    else if (["error", "warning"].includes(message.type())) report.console.push(text);
  });
  page.on("response", async (response) => {
    if (response.status() < 400) return;
    const text = await response.text().catch(String);
    report.refused.push(`${response.status()} ${response.request().postData()?.slice(0, 600)} -> ${text.slice(0, 600)}`);
  });
  page.on("pageerror", (error) => report.console.push(String(error)));
  await page.goto(address);
  // Tabs are shown at once; their text after Monaco has loaded.
  await page.locator(".graphiql-query-editor .view-lines").filter({ hasText: "mutation" }).waitFor();
  return page;
}

async function titles(page) {
  return page.locator(".graphiql-tab .graphiql-tab-button, .graphiql-tab > button[role=tab]").allInnerTexts();
}

async function choose(page, tab) {
  await page.locator(".graphiql-tab").filter({ hasText: tab }).first().locator("button").first().click();
}

/** Runs a tab and returns the result shown once it contains this word. */
async function run(page, tab, word) {
  await choose(page, tab);
  await page.getByRole("button", { name: /Execute query/ }).click();
  return shows(page, tab, word);
}

async function shows(page, tab, word) {
  const deadline = Date.now() + TIMEOUT;
  for (;;) {
    const shown = await result(page);
    if (shown.includes(word) || shown.includes('"errors": [\n')) return shown;
    if (Date.now() > deadline) {
      await page.screenshot({ path: join(shots, "trouble.png") });
      throw new Error(`${tab} shows no ${word}, but: ${shown} ${JSON.stringify(report)}`);
    }
    await page.waitForTimeout(50);
  }
}

async function result(page) {
  const lines = await page.locator(".result-window .view-lines").innerText();
  return lines.replaceAll("\u00a0", " ");
}

/** The protocol does not confirm a subscription, so wait until it was sent on the socket, which keeps the order. */
async function subscribed(page) {
  const deadline = Date.now() + TIMEOUT;
  while (!sent.some((frame) => frame.includes('"subscribe"'))) {
    if (Date.now() > deadline) throw new Error("no subscription was sent");
    await page.waitForTimeout(50);
  }
  await page.waitForTimeout(500);
}

async function create(name) {
  const query = `mutation { createInstance(input: {name: "${name}", productName: "RTX 4090 24GB", image: "nginx",
    ports: [{port: 80}]}) { errors { code message } } }`;
  const response = await fetch(address, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ query }),
  });
  const { data } = await response.json();
  if (data.createInstance.errors.length) throw new Error(JSON.stringify(data));
}
