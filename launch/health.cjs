// `waypost health` in plain CommonJS for Node 20: containers run it often, so the Node.js that starts it runs
// it alone, before anything else is loaded. An ES module that imports node:http would load all of it.
"use strict";

const { get } = require("node:http");
const { readFileSync } = require("node:fs");
const { parseArgs } = require("node:util");

/** The default address of a server. */
const defaultAddress = { host: "127.0.0.1", port: "8080" };

/** How long the server may take to respond, in milliseconds. Its own check of the store takes at most 2 s. */
const timeout = 4_000;

/** See health.d.cts. */
async function answerProbe(args, environment) {
  const flags = readFlags(args);
  if (flags !== null) process.exitCode = await checkHealth(flags, environment);
}

function readFlags(args) {
  const text = { type: "string" };
  try {
    return parseArgs({ args: args.slice(1), options: { url: text, host: text, port: text } }).values;
  } catch {
    return null;
  }
}

/** See health.d.cts. */
async function checkHealth(flags, environment) {
  const address = flags.url ?? toUrl(flags, environment);
  if (!/^https?:/.test(address) || !URL.canParse(address)) {
    process.stderr.write(
      `waypost: --url: "${address}" is not a URL; use one such as http://127.0.0.1:8080\n`,
    );
    return 2;
  }
  const url = `${address.replace(/\/+$/, "")}/v2/health/ready`;
  const problem = await findProblem(url);
  if (problem === null) process.stdout.write("ready\n");
  else process.stderr.write(`waypost: not ready: ${url}: ${problem}\n`);
  return problem === null ? 0 : 1;
}

function toUrl({ host, port }, environment) {
  const inFile = readAddress(environment.WAYPOST_CONFIG);
  const listening = host ?? environment.WAYPOST_HOST ?? inFile.host ?? defaultAddress.host;
  const loopback = listening === "0.0.0.0" ? "127.0.0.1" : listening === "::" ? "::1" : listening;
  const name = loopback.includes(":") ? `[${loopback}]` : loopback;
  return `http://${name}:${port ?? environment.WAYPOST_PORT ?? inFile.port ?? defaultAddress.port}`;
}

/** Reads the address in a configuration file. The server itself reports what is wrong with the file. */
function readAddress(path) {
  try {
    return path ? JSON.parse(readFileSync(path, "utf8")) : {};
  } catch {
    return {};
  }
}

/** Returns why the server cannot take requests, or null if it can. */
async function findProblem(url) {
  try {
    const { statusCode, body } = await fetchText(url);
    return statusCode === 200 ? null : `status ${statusCode}${body === "" ? "" : `, ${body}`}`;
  } catch (error) {
    const isTimeout = error instanceof Error && error.name === "AbortError";
    if (isTimeout) return `no response within ${timeout / 1000} s`;
    return error instanceof Error ? error.message || String(error.code) : String(error);
  }
}

/** The maximum number of characters of a response that are printed. */
const shownText = 500;

function fetchText(url) {
  // TLS takes a tenth of the memory, and most probes do not need it.
  const getUrl = url.startsWith("https:") ? require("node:https").get : get;
  return new Promise((resolve, reject) => {
    getUrl(url, { signal: AbortSignal.timeout(timeout), agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk) => (body = (body + chunk).slice(0, shownText)));
      response.on("error", reject);
      response.on("end", () => resolve({ statusCode: response.statusCode, body: body.trim() }));
    }).on("error", reject);
  });
}

module.exports = { answerProbe, checkHealth, defaultAddress };
