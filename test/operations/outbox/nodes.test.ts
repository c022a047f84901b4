// @module-tag long
import { expect, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { startNode, startNodes } from "../../server/nodes.ts";
import { startDestination } from "../../server/waypost.ts";
import { openUserDatabase } from "./userDatabase.ts";

test("two nodes take the rows of an outbox once, although each of them is killed in turn", async () => {
  const databaseUrl = await freshDatabase();
  const user = await openUserDatabase();
  const messages = new Map<string, Set<string>>();
  const destination = await startDestination(({ headers, body }) => {
    const row = body.toString();
    messages.set(row, (messages.get(row) ?? new Set()).add(String(headers["svc-message-id"])));
    return { status: 200 };
  });
  const { nodes, token } = await startNodes(databaseUrl, ["one", "two"]);
  const ask = async (url: string, method: string, body?: unknown) =>
    (
      await fetch(`${url}/v2/outboxes/shop`, {
        method,
        headers: { Authorization: `Bearer ${token}` },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
    ).json() as Promise<Record<string, unknown>>;
  let [one, two] = nodes;
  if (!one || !two) throw new Error("two nodes were started");
  expect(await ask(one.url, "PUT", { databaseUrl: user.url, token })).toMatchObject({ name: "shop" });
  let rows = 0;
  const insert = async (count: number): Promise<void> => {
    for (const end = rows + count; rows < end;)
      await user.sql.query("select waypost.publish($1, $2::text)", [destination.url, String(++rows)]);
  };
  const expectAll = async (): Promise<void> => {
    await expect.poll(() => messages.size).toBe(rows);
  };
  await insert(100);
  await expectAll();
  const first = (await ask(two.url, "GET"))["node"];
  expect(first).toMatch(/^nod_/);
  await insert(50);
  one.kill("SIGKILL");
  await insert(50);
  await expectAll();
  one = await startNode(databaseUrl, "one");
  await insert(50);
  two.kill("SIGKILL");
  await insert(50);
  await expectAll();
  two = await startNode(databaseUrl, "two");
  await insert(50);
  await expectAll();
  expect([...messages.values()].filter((ids) => ids.size > 1)).toEqual([]);
  expect((await ask(two.url, "GET"))["node"]).not.toBe(first);
});
