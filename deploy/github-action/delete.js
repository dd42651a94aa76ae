// The post step, which runs also after a failure or a cancellation: deletes the instance.
const { state, fail, pilotlight } = require("./pilotlight.js");

// Exit codes after a response: done, refused, wrong usage, failed, timed out.
const ANSWERED = ["0", "1", "2", "3", "4"];
const PAUSE_MS = 1_000;

// A create whose response was not seen may still arrive: soon if its command has ended, later if only our step was killed.
const lateMs = (ended) => (ANSWERED.includes(ended) ? 0 : ended ? 5_000 : 30_000);

const look = async (name) => (await pilotlight(["get", name, "-o", "name"])).code;

async function main() {
  const name = state("name");
  if (!name) return; // the main step did not get as far as a request
  const until = Date.now() + lateMs(state("ended"));
  let found = await look(name);
  while (found === 1 && Date.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    found = await look(name);
  }
  if (found === 1) return console.log(`${name} does not exist: nothing to delete`);
  const { code } = await pilotlight(["rm", name, "--yes", "-o", "name", "--timeout", "10m"]);
  if (code !== 0) fail(`pilotlight rm ${name} ended with ${code}; the server deletes it at the end of max-duration`);
}

main().catch(fail);
