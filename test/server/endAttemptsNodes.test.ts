// @module-tag long
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { seeEachOther, startNodes } from "./nodes.ts";

type Asked = { path: string; headers?: Record<string, string> };

/** Starts two nodes, and a destination that hangs for the first `hangs` requests. */
async function openNodes(hangs: number, environment: Record<string, string> = {}) {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.kill());
  const counts = { requests: 0, closed: 0 };
  const destination = createServer((socket) => {
    socket.on("error", () => undefined).on("close", () => counts.closed++);
    socket.on("data", () => {
      if (counts.requests++ >= hangs)
        socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    });
  }).listen(0, "127.0.0.1");
  await once(destination, "listening");
  onTestFinished(() => void destination.close());
  const { nodes, token } = await startNodes(postgres.url, ["one", "two"], environment);
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
  const { port } = destination.address() as AddressInfo;
  const path = `/v2/publish/http://127.0.0.1:${port}/a`;
  const headers = { "svc-retries": "0", "svc-retry-delay": "500" };
  const id = String((await ask(one, "POST", { path, headers }))["messageId"]);
  await expect.poll(() => counts.requests).toBe(1);
  return {
    ...{ one, counts },
    read: () => ask(two, "GET", { path: `/v2/messages/${id}` }),
    end: (attempt: number) => ask(two, "POST", { path: `/v2/messages/${id}/end-attempt?attempt=${attempt}` }),
  };
}

test("a node ends an attempt of another node at once", async () => {
  // Without a notice, the node would see it when it renews the lease, which is after 15 minutes.
  const { counts, read, end } = await openNodes(1, { TEST_LEASE: "3600000" });
  expect(await end(0)).toMatchObject({ ended: true });
  await expect.poll(() => counts.closed).toBe(1);
  const outcomes = async () => (await read())["outcomes"];
  await expect.poll(outcomes).toMatchObject([{ error: "ended by operator" }]);
  await expect.poll(async () => (await read())["state"]).toBe("delivered");
});

test("a node takes over an attempt that is ended while its node dies", async () => {
  const { one, read, end } = await openNodes(1);
  expect(await read()).toMatchObject({ waitingOn: [{ reason: "sending", attempt: 0 }] });
  one.kill("SIGKILL");
  await end(0);
  await expect.poll(async () => (await read())["state"]).toBe("delivered");
});
