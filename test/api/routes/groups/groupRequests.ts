import { expect } from "vitest";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

/** The first endpoint of a group. */
export const a = "https://a.example/x";
/** The second endpoint of a group. */
export const b = "https://b.example/y?z=1";
/** The path of the group `orders`. */
export const path = "/v2/topics/orders";
/** Returns a request with a JSON body. */
export const json = (body: unknown) => ({ body: JSON.stringify(body) });
/** Adds endpoints to the group `orders`. */
export const add = ({ ask }: TestServer, endpoints: unknown, more: { token?: string } = {}) =>
  ask("POST", `${path}/endpoints`, { ...json({ endpoints }), ...more });
/** Sets the default headers of the group `orders`. */
export const patch = ({ ask }: TestServer, headers: unknown) => ask("PATCH", path, json({ headers }));

/** Returns a server with the group `orders`. */
export async function serverWith(
  headers: Record<string, string | string[]> = {},
  endpoints: unknown = [{ url: a, name: "first" }, { url: b }],
): Promise<TestServer> {
  const server = await createTestServer();
  expect((await add(server, endpoints)).status).toBe(200);
  if (Object.keys(headers).length > 0) expect((await patch(server, headers)).status).toBe(200);
  return server;
}

/** Returns the messages of all deliveries so far. */
export const published = (server: TestServer) => server.deliveries.map(({ message }) => message);
