import { request } from "undici";
import { cpuTime } from "./processFigures.ts";

/** A server to measure: it accepts a publish and calls the sink. */
export type Server = {
  name: string;
  pid: number;
  port: number;
  token: string;
  /** The other nodes, if there are several on one database. */
  others?: readonly Server[];
  /** Returns the CPU time so far of its database, if that is a separate process, in microseconds. */
  databaseCpu?: () => number;
  /**
   * Returns the number of accepted messages that are not settled, or null if the server has no such figure,
   * for example because it stores nothing.
   */
  unsettled(): Promise<number | null>;
  stop(): Promise<void>;
};

/**
 * Calls the API of a server. Returns the text of the response, or `missing` for 404. Throws for other error
 * statuses.
 */
export async function ask(
  { name, port, token }: Server,
  {
    method = "GET",
    path,
    json,
    missing,
  }: { method?: "GET" | "POST" | "PUT" | "DELETE"; path: string; json?: object; missing?: string },
): Promise<string> {
  const response = await request(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(json === undefined ? {} : { "content-type": "application/json" }),
    },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  const text = await response.body.text();
  if (response.statusCode < 300) return text;
  if (response.statusCode === 404 && missing !== undefined) return missing;
  throw new Error(`${name} answered ${response.statusCode} to ${method} ${path}: ${text.slice(0, 500)}`);
}

/**
 * Waits until the server has used almost no CPU for 200 ms, but at most `timeout` milliseconds, so that the
 * end of one turn does not slow down the next.
 */
export async function waitUntilQuiet(pid: number, timeout = 5_000): Promise<void> {
  const deadline = performance.now() + timeout;
  for (let before = cpuTime(pid); performance.now() < deadline;) {
    await pause(200);
    const now = cpuTime(pid);
    if (now - before <= 10_000) return;
    before = now;
  }
}

/** Sleeps for this many milliseconds. */
export function pause(time: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, time));
}
