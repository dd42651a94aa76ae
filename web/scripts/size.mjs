// Prints the gzipped size of a first visit (the page, its scripts and styles), and fails above the limit.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const LIMIT = 60 * 1024;
const dist = join(dirname(fileURLToPath(import.meta.url)), "../dist.new");
const page = readFileSync(join(dist, "index.html"));
const named = [...page.toString().matchAll(/(?:src|href)="\/(assets\/[^"]+)"/g)].map((match) => match[1]);
const parts = [["index.html", page], ...named.map((name) => [name, readFileSync(join(dist, name))])];
let total = 0;
for (const [name, content] of parts) {
  const size = gzipSync(content, { level: 9 }).length;
  total += size;
  console.log(`  ${(content.length / 1024).toFixed(1).padStart(7)} KB ${(size / 1024).toFixed(1).padStart(6)} KB gzipped  ${name}`);
}
console.log(`first load: ${(total / 1024).toFixed(1)} KB gzipped of ${LIMIT / 1024} KB allowed`);
if (total > LIMIT) process.exit(1);
