// @module-tag long
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { seeEachOther, startNodes } from "./nodes.ts";

type Asked = { path: string; headers?: Record<string, string> };

test("a node ends an attempt of another node at once, or takes it over if that node dies", async () => {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.kill());
  const closed: number[] = [];
  let requests = 0;
  const destination = createServer((socket) => {
    socket.on("error", () => undefined).on("close", () => closed.push(Date.now()));
    socket.on("data", () => {
      if (requests++ >= 2) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    });
  }).listen(0, "127.0.0.1");
  await once(destination, "listening");
  onTestFinished(() => void destination.close());
  const host = `127.0.0.1:${(destination.address() as AddressInfo).port}`;
  const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
  const [one, two] = nodes;
  if (!one || !two) throw new Error("there are no nodes");
  await seeEachOther(postgres.url, 2);
  const ask = async (node: { url: string }, method: string, { path, headers = {} }: Asked) => {
    const response = await fetch(`${node.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, ...headers },
    });
    return (await response.json()) as Record<string, unknown>;
  };
  const sent = { "svc-retries": "0", "svc-retry-delay": "500" };
  const publish = async () =>
    String((await ask(one, "POST", { path: `/v2/publish/http://${host}/a`, headers: sent }))["messageId"]);
  const state = async (id: string) => (await ask(two, "GET", { path: `/v2/messages/${id}` }))["state"];
  const first = await publish();
  await expect.poll(() => requests, { timeout: 10_000 }).toBe(1);
  const pressedAt = Date.now();
  expect(await ask(two, "POST", { path: `/v2/messages/${first}/end-attempt?attempt=0` })).toMatchObject({
    ended: true,
  });
  await expect.poll(() => closed.length, { timeout: 5_000 }).toBe(1);
  // A renewal alone would take up to 2 s on these nodes.
  expect((closed[0] ?? Infinity) - pressedAt).toBeLessThan(1_500);
  expect(await ask(two, "GET", { path: `/v2/messages/${first}` })).toMatchObject({
    outcomes: [{ error: "ended by operator" }],
  });

  // The retry hangs as well. Its node dies with the press in the same moment.
  await expect.poll(() => requests, { timeout: 10_000 }).toBe(2);
  const { waitingOn } = (await ask(two, "GET", { path: `/v2/messages/${first}` })) as {
    waitingOn: { node: string }[];
  };
  expect(waitingOn).toMatchObject([{ reason: "sending", attempt: 1 }]);
  one.kill("SIGKILL");
  await ask(two, "POST", { path: `/v2/messages/${first}/end-attempt?attempt=1` });
  await expect.poll(() => state(first), { timeout: 30_000 }).toBe("delivered");
}, 90_000);
