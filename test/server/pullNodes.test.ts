// @module-tag long
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import type { Node } from "./nodes.ts";
import { startNodes } from "./nodes.ts";

// Two nodes on one database: pulls, reports and origins on either of them.

const origin = "https://worker.internal";

type Attempt = { attempt: string; messageId: string; bodyBase64: string };

async function openNodes() {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.kill());
  const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
  const [one, two] = nodes;
  if (!one || !two) throw new Error("there are no nodes");
  const ask = async (
    node: Node,
    what: string,
    { body, attempt }: { body?: unknown; attempt?: string } = {},
  ) => {
    const [method = "", path = ""] = what.split(" ");
    const response = await fetch(`${node.url}${path}`, {
      method,
      headers: attempt === undefined ? { authorization: `Bearer ${token}` } : { "svc-attempt": attempt },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const pull = async (node: Node, more: object = {}): Promise<Attempt[]> =>
    (await ask(node, "POST /v2/pull", { body: { origin, wait: "20s", ...more } })).body[
      "attempts"
    ] as Attempt[];
  const publish = async (node: Node, name: string): Promise<string> =>
    String((await ask(node, `POST /v2/publish/${origin}/${name}`, { body: { name } })).body["messageId"]);
  const state = async (node: Node, id: string) => (await ask(node, `GET /v2/messages/${id}`)).body["state"];
  expect((await ask(one, "PUT /v2/pulled", { body: { origin } })).status).toBe(200);
  return { one, two, ask, pull, publish, state };
}

test("a pull gets the messages of another node, and any node takes the report", async () => {
  const { one, two, ask, pull, publish, state } = await openNodes();
  const waiting = pull(two);
  // Nothing of the pull can be seen on the other node.
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const first = await publish(one, "first");
  const [got] = await waiting;
  expect(got?.messageId).toBe(first);
  const attempt = got?.attempt ?? "";
  await expect.poll(() => state(one, first)).toBe("acknowledging");
  const extended = await ask(one, "POST /v2/attempts", { body: { extend: "10m" }, attempt });
  expect(extended).toMatchObject({ status: 200, body: { messageId: first } });
  const report = { outcome: "ok", status: 200, body: "made" };
  expect(await ask(one, "POST /v2/attempts", { body: report, attempt })).toMatchObject({
    ...{ status: 200, body: { became: "delivered" } },
  });
  // The same report again, and another one, on the other node.
  expect(await ask(two, "POST /v2/attempts", { body: report, attempt })).toMatchObject({ status: 200 });
  expect(await ask(two, "POST /v2/attempts", { body: { outcome: "failed" }, attempt })).toMatchObject({
    ...{ status: 409, body: { code: "attempt-reported" } },
  });
  expect([await state(one, first), await state(two, first)]).toEqual(["delivered", "delivered"]);
});

test("pulls on both nodes share the messages of both, each once", async () => {
  const { one, two, ask, pull, publish, state } = await openNodes();
  const got: string[] = [];
  let isOver = false;
  const work = async (node: Node, other: Node): Promise<void> => {
    while (!isOver)
      for (const { attempt, messageId } of await pull(node, { max: 3, wait: "2s" })) {
        got.push(messageId);
        await ask(other, "POST /v2/attempts", { body: { outcome: "ok" }, attempt });
      }
  };
  const workers = [work(one, two), work(two, one), work(two, two)];
  const names = Array.from({ length: 40 }, (_, at) => `job-${at}`);
  const ids = await Promise.all(names.map((name, at) => publish(at % 2 === 0 ? one : two, name)));
  await expect.poll(() => got.length).toBeGreaterThanOrEqual(ids.length);
  isOver = true;
  await Promise.all(workers);
  expect(got.toSorted()).toEqual(ids.toSorted());
  for (const id of ids) expect(await state(one, id)).toBe("delivered");
});

test("a pull ends when its origin is removed on another node", async () => {
  const { one, two, ask } = await openNodes();
  const waiting = ask(two, "POST /v2/pull", { body: { origin, wait: "60s" } });
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const other = "https://other.internal";
  expect((await ask(one, "PUT /v2/pulled", { body: { origin: other } })).status).toBe(200);
  // Begins to wait before the removal, and ends after the other pull.
  const shorter = ask(two, "POST /v2/pull", { body: { origin: other, wait: "5s" } });
  const path = `/v2/pulled?origin=${encodeURIComponent(origin)}`;
  expect((await ask(one, `DELETE ${path}`)).status).toBe(200);
  expect(await Promise.race([waiting, shorter])).toMatchObject({ status: 404, body: { code: "not-found" } });
  expect(await shorter).toMatchObject({ status: 200, body: { attempts: [] } });
});
