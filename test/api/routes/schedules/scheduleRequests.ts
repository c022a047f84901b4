import { expect } from "vitest";
import type { Reply, TestServer } from "../../testServer.ts";

/** One minute in milliseconds. */
export const minute = 60_000;
const every5 = { "svc-cron": "*/5 * * * *" };

type More = { headers?: Record<string, string>; body?: string | Buffer; token?: string };

/** Creates a schedule, every 5 minutes unless the headers have another time, and returns the response. */
export const post = (
  { ask }: TestServer,
  destination: string,
  { headers = {}, ...more }: More = {},
): Promise<Reply> =>
  ask("POST", `/v2/schedules/${destination}`, { headers: { ...every5, ...headers }, ...more });

/** Creates a schedule and returns its id. */
export async function create(server: TestServer, destination: string, more: More = {}): Promise<string> {
  const { status, body } = await post(server, destination, more);
  expect({ status, body }).toEqual({ status: 200, body: { scheduleId: expect.any(String) } });
  return body.scheduleId;
}

/** Reads a schedule. */
export async function read({ ask }: TestServer, id: string): Promise<Reply["body"]> {
  const { status, body } = await ask("GET", `/v2/schedules/${id}`);
  expect(status).toBe(200);
  return body;
}

/** Sets the clock and claims everything that is due. The clock of a test server starts at 08:00:00 UTC. */
export async function come({ clock, store }: TestServer, time: number): Promise<void> {
  clock.now = time;
  await store.execute("claim", { limit: 100 });
}

/** Creates the URL group `shops` with these URLs. */
export const makeGroup = ({ store }: TestServer, urls: readonly string[]) =>
  store.execute("addEndpoints", {
    account: "acc_1",
    name: "shops",
    endpoints: urls.map((url) => ({ name: null, url })),
  });
