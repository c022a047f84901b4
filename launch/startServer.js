import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { findModernNode, noModernNode } from "./modernNode.js";
import { childOptions } from "./runFile.js";

/** The maximum number of characters of the log that are kept for an error. */
const keptLog = 4_000;

/** See startServer.d.ts. */
export async function startServer({ port = 0, data } = {}) {
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new Error(`port: ${port} is not a whole number from 0 to 65535`);
  const node = findModernNode();
  if (node === null) throw new Error(noModernNode);
  const args = [
    "dev",
    "--log-format",
    "auto",
    "--port",
    String(port),
    ...(data === undefined ? [] : ["--data", data]),
  ];
  const child = spawn(
    node,
    [...childOptions, fileURLToPath(new URL("waypost.js", import.meta.url)), ...args],
    {
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    },
  );
  let log = "";
  child.stderr.on("data", (chunk) => (log = (log + chunk).slice(-keptLog)));
  const ended = new Promise((resolve) => {
    // A process that could not be started may not emit `exit`.
    child.on("error", (error) => resolve(error.message));
    // `close` is not emitted after a disconnect.
    child.on("exit", () =>
      child.stderr.readableEnded ? resolve(log) : child.stderr.on("end", () => resolve(log)),
    );
  });
  const stop = async () => {
    // The channel ends the server in order on every platform.
    if (child.connected) child.disconnect();
    await ended;
  };
  const failed = ended.then((reason) => {
    throw new Error(`the server did not start: ${String(reason).trim() || "it gave no reason"}`);
  });
  const { url, credentials } = await Promise.race([readStart(child), failed]);
  failed.catch(() => undefined);
  const { WAYPOST_TOKEN, WAYPOST_CURRENT_SIGNING_KEY, WAYPOST_NEXT_SIGNING_KEY } = credentials;
  if (WAYPOST_TOKEN === undefined) {
    await stop();
    throw new Error(
      `data: ${data} has no development account with the well-known credentials, as after "waypost start"; ` +
        "choose another folder",
    );
  }
  return {
    url,
    token: WAYPOST_TOKEN,
    signingKeys: { current: WAYPOST_CURRENT_SIGNING_KEY, next: WAYPOST_NEXT_SIGNING_KEY },
    stop,
  };
}

/** Reads the output of a server until it says where it runs. */
function readStart(child) {
  const credentials = {};
  return new Promise((resolve) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [, name, value] = /^(WAYPOST_\w+)="(.*)"$/.exec(line) ?? [];
      if (name !== undefined) credentials[name] = value;
      const [, url] = /^running at (http:\S+)$/.exec(line) ?? [];
      if (url !== undefined) resolve({ url, credentials });
    });
  });
}
