// Replaces dist/ with the finished build by renaming, so that a request meanwhile gets the old or the new page as a whole.
import { copyFileSync, existsSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const old = join(web, "dist.old");
copyFileSync(join(web, "src/generated/documents.json"), join(web, "dist.new/documents.json"));
rmSync(old, { recursive: true, force: true });
if (existsSync(join(web, "dist"))) renameSync(join(web, "dist"), old);
renameSync(join(web, "dist.new"), join(web, "dist"));
rmSync(old, { recursive: true, force: true });
