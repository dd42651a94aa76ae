// Shared by both steps: inputs, outputs, state and the pilotlight command. No dependencies.
const { spawn } = require("node:child_process");
const fs = require("node:fs");

const SIGNALS = ["SIGINT", "SIGTERM"];

const input = (name) => (process.env[`INPUT_${name.toUpperCase()}`] ?? "").trim();

// Values go to the files that the runner names, with a delimiter that no value can contain.
const write = (file, name, value) => {
  if (!file) return;
  const end = `end_${require("node:crypto").randomUUID()}`;
  fs.appendFileSync(file, `${name}<<${end}\n${value}\n${end}\n`);
};
const output = (name, value) => write(process.env.GITHUB_OUTPUT, name, value);
const saveState = (name, value) => write(process.env.GITHUB_STATE, name, value);
const state = (name) => process.env[`STATE_${name}`] ?? "";

const fail = (message) => {
  console.log(`::error::${String(message).replace(/%/g, "%25").replace(/\r/g, "%0D").replace(/\n/g, "%0A")}`);
  process.exitCode = 1;
};

// The URL and the token reach the command through its environment, never as arguments.
const pilotlight = (args) =>
  new Promise((resolve, reject) => {
    const env = { ...process.env, PILOTLIGHT_URL: input("url"), PILOTLIGHT_TOKEN: input("token") };
    const child = spawn(input("command") || "pilotlight", args, { env, stdio: ["ignore", "pipe", "inherit"] });
    // A cancelled workflow signals this process only: the command has to be told, or it would go on alone.
    const tell = (signal) => child.kill(signal);
    for (const signal of SIGNALS) process.on(signal, tell);
    let printed = "";
    child.stdout.on("data", (part) => (printed += part));
    child.on("error", reject);
    child.on("close", (code) => {
      for (const signal of SIGNALS) process.off(signal, tell);
      resolve({ code, printed });
    });
  });

module.exports = { input, output, saveState, state, fail, pilotlight };
