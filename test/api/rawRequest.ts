import { request } from "node:http";
import type { TestServer } from "./testServer.ts";
import { portOf } from "./testServer.ts";

type RawAnswer = { status: number; headers: Record<string, unknown>; body: Buffer };

/** Sends a GET with exactly this path, which `fetch` would normalize. Returns the body as it was sent. */
export async function openPath(server: TestServer, path: string, more: object = {}): Promise<RawAnswer> {
  const port = await portOf(server.api);
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, path, agent: false, ...more }, (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(parts) }),
      );
    });
    sent.on("error", reject).end();
  });
}
