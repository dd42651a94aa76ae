// The post step, which runs also after a failure or a cancellation: deletes the instance.
const { state, fail, pilotlight } = require("./pilotlight.js");

async function main() {
  const name = state("name");
  if (!name) return; // the main step did not get as far as a request
  const { code: found } = await pilotlight(["get", name, "-o", "name"]);
  if (found === 1) return console.log(`${name} does not exist: nothing to delete`);
  const { code } = await pilotlight(["rm", name, "--yes", "-o", "name", "--timeout", "10m"]);
  if (code !== 0) fail(`pilotlight rm ${name} ended with ${code}; the server deletes it at the end of max-duration`);
}

main().catch(fail);
