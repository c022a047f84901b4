import { createTestServer, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { listen } from "../wire.ts";

/** Creates a server that records the URLs of the requests that its framework answers. */
export async function open(
  options: Parameters<typeof createTestServer>[0] = {},
): Promise<TestServer & { port: number; usual: string[] }> {
  const server = await createTestServer(options);
  const usual: string[] = [];
  server.api.addHook("onResponse", async ({ originalUrl }) => void usual.push(originalUrl));
  return { ...server, port: await listen(server), usual };
}

/** Returns the Authorization header line with a token. */
export const bearer = (secret = token): string => `Authorization: Bearer ${secret}`;
