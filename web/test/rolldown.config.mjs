// Node 20 can't read TypeScript: the tests are put together first, by what vite puts the page together with.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

export default {
  input: readdirSync(here).filter((name) => name.endsWith(".test.ts")).map((name) => join(here, name)),
  platform: "node",
  output: { dir: join(here, "../.test"), format: "esm", entryFileNames: "[name].mjs" },
};
