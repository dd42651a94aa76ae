// Opens a page with a fresh profile, and records console problems and the hosts that were contacted.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

export const CHROMIUM = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

// Chromium makes two hidden pages for the address bar of each window, which take three quarters of a window's CPU. The
// switch replaces Playwright's own, so what it switches off for the same results every time is named again.
const DISABLED = [
  "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
  "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay", "MediaRouter",
  "OptimizationHints", "PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning",
];

const ARGUMENTS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb",
  `--disable-features=${DISABLED}`,
];

// Generous, because the machine may be slow; a test that passes does not wait for it.
export const TIMEOUT = 60_000;

// One Chromium for all pages, until closeAll. Contexts share no cookies, storage or cache.
let running;

export async function open({ width = 1280, height = 800, theme = "light", ...more } = {}) {
  running ??= chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
  const browser = await running;
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT);
  const problems = [];
  const requests = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") problems.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`error: ${error.stack ?? error}`));
  page.on("request", (request) => requests.push(request.url()));
  const subscriptions = { open: new Map(), failed: 0 };
  page.on("websocket", (socket) => {
    requests.push(socket.url());
    follow(socket, subscriptions);
  });
  return {
    context,
    page,
    problems,
    requests,
    subscriptions,
    close: () => context.close(),
  };
}

export async function closeAll() {
  await (await running)?.close();
}

// The names of the socket's open subscriptions by their ids, and how many results had errors.
function follow(socket, subscriptions) {
  const mine = new Set();
  const end = (id) => mine.delete(id) && subscriptions.open.delete(id);
  socket.on("framesent", ({ payload }) => {
    const { id, type, payload: request } = JSON.parse(payload);
    if (type === "complete") end(id);
    if (type !== "subscribe") return;
    mine.add(id);
    subscriptions.open.set(id, /subscription (\w+)/.exec(request.query)?.[1]);
  });
  socket.on("framereceived", ({ payload }) => {
    const { id, type, payload: result } = JSON.parse(payload);
    if (type === "complete" || type === "error") end(id);
    if (type === "next" && result.errors) subscriptions.failed += 1;
  });
  socket.on("close", () => [...mine].forEach(end));
}

// Hosts other than the page's own that received a request.
export function otherHosts(requests, base) {
  const own = new URL(base).host;
  return [...new Set(requests.map((url) => new URL(url)).filter((url) => url.host !== own && url.protocol !== "data:").map((url) => url.host))];
}

export async function isLive(page) {
  await page.locator(".connection.live").waitFor();
}
