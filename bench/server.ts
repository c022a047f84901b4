import { request } from "undici";
import { cpuTime } from "./process-figures.ts";

/** A server under test: something that takes a publish and calls the sink. */
export type Server = {
  name: string;
  pid: number;
  port: number;
  token: string;
  /** The other nodes, where it is several on one database. */
  others?: readonly Server[];
  /** Messages accepted and not settled; null when the server keeps no such figure, as when it stores nothing. */
  unsettled(): Promise<number | null>;
  stop(): Promise<void>;
};

/** Asks the server's own interface, and answers the text of its answer. Throws when it refuses, except with `missing` for 404. */
export async function ask(
  { name, port, token }: Server,
  { method = "GET", path, json, missing }: { method?: "GET" | "POST"; path: string; json?: object; missing?: string },
): Promise<string> {
  const response = await request(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(json === undefined ? {} : { "content-type": "application/json" }) },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  const text = await response.body.text();
  if (response.statusCode < 300) return text;
  if (response.statusCode === 404 && missing !== undefined) return missing;
  throw new Error(`${name} answered ${response.statusCode} to ${method} ${path}: ${text.slice(0, 500)}`);
}

/** Waits until the server has used next to no CPU for 200 ms, at most `patience` milliseconds, so that nobody pays for another's tail. */
export async function waitUntilQuiet(pid: number, timeout = 5_000): Promise<void> {
  const deadline = performance.now() + timeout;
  for (let before = cpuTime(pid); performance.now() < deadline;) {
    await pause(200);
    const now = cpuTime(pid);
    if (now - before <= 10_000) return;
    before = now;
  }
}

/** Sleeps for so many milliseconds. */
export function pause(time: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, time));
}
