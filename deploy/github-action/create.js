// The main step: creates the instance and waits until it is READY.
const { input, output, saveState, fail, pilotlight } = require("./pilotlight.js");

const part = (text) => (text ?? "").replace(/[^A-Za-z0-9-]+/g, "-");

async function main() {
  const { GITHUB_REPOSITORY, GITHUB_RUN_ID, GITHUB_RUN_ATTEMPT, GITHUB_JOB, GITHUB_ACTION } = process.env;
  const key = [GITHUB_REPOSITORY, GITHUB_RUN_ID, GITHUB_RUN_ATTEMPT, GITHUB_JOB, GITHUB_ACTION].map(part).join("-");
  const name = input("name") || `gh-${key}`.slice(0, 200);
  // Before the request: a step that is cancelled during it must be cleaned up as well.
  saveState("name", name);
  const options = input("options").split("\n").map((line) => line.trim()).filter(Boolean);
  const { code, printed } = await pilotlight([
    "create", name, "--product", input("product"), "--image", input("image"), "--key", `github-${key}-${name}`.slice(0, 255),
    "--max-duration", input("max-duration"), "--on-end", "DELETE", "--timeout", input("timeout") || "20m",
    "-o", "json", "--yes", ...options,
  ]);
  saveState("ended", String(code));
  if (code !== 0) return fail(`pilotlight create ended with ${code}`);
  const instance = JSON.parse(printed);
  output("id", instance.id);
  output("name", instance.name);
  output("address", instance.endpoints[0]?.address ?? "");
  output("json", JSON.stringify(instance));
}

main().catch(fail);
