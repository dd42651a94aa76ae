// Node 20 can't run TypeScript, so the tests are bundled first, with the bundler that vite uses.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

export default {
  input: readdirSync(here).filter((name) => name.endsWith(".test.ts")).map((name) => join(here, name)),
  platform: "node",
  output: { dir: join(here, "../.test"), format: "esm", entryFileNames: "[name].mjs" },
};
