// @module-tag long
import { request as requestHttp } from "node:http";
import type { IncomingMessage } from "node:http";
import { request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { developmentToken, readCredentials, startWaypost, temporaryFolder } from "../waypost.ts";

// GET /v2/logs/tail of a real server, with a client that reads too slowly.

type Line = { messageId?: string; dropped?: number | null; ended?: string; url?: string };
type Server = { url: string; authorization: string };

/** Opens a tail, and collects its lines while it is read. */
function openTail({ url, authorization }: Server): Promise<{ response: IncomingMessage; lines: Line[] }> {
  return new Promise((resolve, reject) => {
    const outgoing = requestHttp(`${url}/v2/logs/tail`, { headers: { authorization }, agent: false });
    onTestFinished(() => void outgoing.destroy());
    outgoing.on("error", reject).on("response", (response) => {
      const lines: Line[] = [];
      let rest = "";
      response.on("data", (chunk: Buffer) => {
        const parts = (rest + chunk.toString()).split("\n");
        rest = parts.pop() ?? "";
        lines.push(...parts.map((part) => JSON.parse(part) as Line));
        resolve({ response, lines });
      });
    });
    outgoing.end();
  });
}

/** Publishes messages that wait for a day, so that each has one entry in the log. */
async function publish({ url, authorization }: Server, destinations: readonly string[]): Promise<void> {
  const reply = await request(`${url}/v2/batch`, {
    method: "POST",
    headers: { authorization, "content-type": "application/json" },
    body: JSON.stringify(
      destinations.map((destination) => ({ destination, headers: { "Svc-Delay": "1d" } })),
    ),
  });
  expect(reply.statusCode).toBe(200);
  await reply.body.dump();
}

async function until(isDone: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isDone())) await new Promise((resolve) => setTimeout(resolve, 200));
}

const stores: readonly (readonly [name: string, start: () => Promise<{ args: string[]; token: string }>])[] =
  [
    ["SQLite", async () => ({ args: ["dev"], token: developmentToken })],
    ["PostgreSQL", async () => ({ args: ["start", "--database-url", await freshDatabase()], token: "" })],
  ];

/** Starts a server, and returns it with the main token of its first account. */
async function start(prepare: (typeof stores)[number][1]) {
  const { args, token } = await prepare();
  const server = await startWaypost([...args, "--port", "0", "--data", temporaryFolder()]);
  const known = token === "" ? await readCredentials(...args.slice(1)) : `WAYPOST_TOKEN="${token}"`;
  const authorization = `Bearer ${/^WAYPOST_TOKEN="(.*)"$/m.exec(known)?.[1] ?? ""}`;
  return { server, to: { url: server.url, authorization } };
}

/** Sends a request, such as `GET /v2/logs`. Returns the status and the body. */
async function call(to: Server, line: string, body?: object) {
  const [method, path] = line.split(" ") as ["GET" | "POST" | "DELETE", string];
  const headers = { authorization: to.authorization };
  const reply = await request(`${to.url}${path}`, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: reply.statusCode, body: (await reply.body.json()) as Record<string, string> };
}

describe.each(stores)("the tail of the log on %s", (_, prepare) => {
  test("ends when its token is revoked, while wrong requests keep its client locked out", async () => {
    const { to } = await start(prepare);
    const made = await call(to, "POST /v2/tokens", { name: "reader", verbs: ["read"] });
    const revoked = { url: to.url, authorization: `Bearer ${made.body["token"]}` };
    const [tail, other] = [await openTail(revoked), await openTail(to)];
    const wrong = { ...to, authorization: "Bearer wrong" };
    await until(async () => (await call(wrong, "GET /v2/logs")).status === 429);
    await call(to, `DELETE /v2/tokens/${made.body["tokenId"]}`);
    const revokedAt = performance.now();
    await until(async () => {
      expect([401, 429]).toContain((await call(revoked, "GET /v2/logs")).status);
      return tail.response.readableEnded || performance.now() - revokedAt > 60_000;
    });
    expect(tail.lines.at(-1)).toEqual({
      ended: expect.stringContaining("token: not valid"),
      code: "unauthorized",
    });
    expect(other.response.readableEnded).toBe(false);
  });

  test("tells a slow reader how many entries it left out, and ends when the server stops", async () => {
    const { server, to } = await start(prepare);
    const fast = await openTail(to);
    const slow = await openTail(to);
    slow.response.pause();
    const long = "x".repeat(2_000);
    const batches = 80;
    for (let batch = 0; batch < batches; batch++)
      await publish(
        to,
        Array.from({ length: 100 }, (__, at) => `https://a.example/${batch}/${at}/${long}`),
      );
    // When the fast tail shows a mark, the slow one was offered everything before it.
    const isMark = ({ url }: Line): boolean => url?.startsWith("https://mark.example/") ?? false;
    let marks = 0;
    await until(async () => {
      if (fast.lines.some(isMark)) return true;
      await publish(to, [`https://mark.example/${marks++}`]);
      return false;
    });
    slow.response.resume();
    await until(() => slow.lines.some(({ dropped }) => dropped !== undefined));
    // A later entry follows the line with the number.
    const after = `https://mark.example/after`;
    await publish(to, [after]);
    await until(() => slow.lines.some(({ url }) => url === after));
    const shown = slow.lines.filter(({ messageId }) => messageId !== undefined);
    const left = slow.lines.flatMap(({ dropped }) => (dropped === undefined ? [] : [dropped]));
    expect(new Set(shown.map(({ messageId }) => messageId)).size).toBe(shown.length);
    expect(shown.length).toBeLessThan(batches * 100);
    // A server that is very far behind does not know the number. It is then null.
    if (!left.includes(null))
      expect(shown.length + left.reduce<number>((sum, count) => sum + (count ?? 0), 0)).toBe(
        batches * 100 + marks + 1,
      );
    server.kill("SIGTERM");
    await until(() => fast.response.readableEnded && slow.response.readableEnded);
    for (const { response, lines } of [fast, slow]) {
      expect(lines.at(-1)).toEqual({ ended: "the server is stopping", code: "stopping" });
      expect(response.complete).toBe(true);
    }
    expect((await server.ended).code).toBe(0);
  });
});
