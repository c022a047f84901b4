import { describe, expect, test } from "vitest";
import { createTestServer } from "../../api/testServer.ts";
import type { TestServer } from "../../api/testServer.ts";
import { connectTo, makeOutbox, openUserDatabase, relayParts, startRelay } from "./userDatabase.ts";

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

/** Waits until `count` messages were delivered, and returns them in their order. */
async function takeDeliveries(server: TestServer, count: number) {
  await expect.poll(() => server.deliveries.length).toBe(count);
  return server.deliveries.splice(0).map(({ message }) => message);
}

async function start() {
  const server = await createTestServer();
  const user = await openUserDatabase();
  const relay = await startRelay(relayParts(server.store), makeOutbox(user.url));
  const count = async (table: string): Promise<number> =>
    Number((await user.sql.query(`select count(*) from waypost.${table}`)).rows[0].count);
  return { server, relay, count, ...user };
}

describe("a relay", () => {
  test("publishes what a transaction has committed, with its settings and headers", async () => {
    const { server, sql, count } = await start();
    await sql.query("begin");
    const { rows } = await sql.query(
      `select waypost.publish('https://app.example/mail', '{"order": 7}',
        '{"Svc-Retries": 5, "Svc-Label": "m"}',
        '{"X-One": ["a", "b"], "Content-Type": "text/x-order"}') as key`,
    );
    expect(rows[0].key).toMatch(/^[0-9a-f-]{36}$/);
    expect(await count("outbox")).toBe(1);
    await sql.query("commit");
    const [message] = await takeDeliveries(server, 1);
    expect(message).toMatchObject({
      ...{ account: "acc_1", url: "https://app.example/mail", retries: 5, labels: ["m", "outbox:shop"] },
      headers: [
        ["Content-Type", "text/x-order"],
        ["X-One", "a"],
        ["X-One", "b"],
      ],
    });
    expect(text(message?.body ?? new Uint8Array())).toBe('{"order": 7}');
    await expect.poll(() => count("outbox")).toBe(0);
    expect(await server.store.read.outboxes("acc_1")).toMatchObject([{ taken: 1, error: null }]);
    await expect.poll(async () => (await server.store.read.outboxes("acc_1"))[0]?.marks).toEqual([]);
  });

  test("publishes nothing of a transaction that was rolled back", async () => {
    const { server, sql } = await start();
    await sql.query("begin; select waypost.publish('https://app.example/no', 'x'); rollback");
    await sql.query("select waypost.publish('https://app.example/yes', 'x')");
    const [message] = await takeDeliveries(server, 1);
    expect(message?.url).toBe("https://app.example/yes");
  });

  test("keeps the order within a transaction", async () => {
    const { server, sql } = await start();
    await sql.query(
      "select waypost.publish('https://app.example/' || n, n::text) from generate_series(1, 1200) n",
    );
    const messages = await takeDeliveries(server, 1200);
    expect(messages.map(({ body }) => Number(text(body)))).toEqual(
      Array.from({ length: 1200 }, (_, at) => at + 1),
    );
  });

  test("publishes each kind of body", async () => {
    const { server, sql } = await start();
    await sql.query(`select waypost.publish('https://app.example/1', 'grün'::text),
      waypost.publish('https://app.example/2', '{"b": 1,  "a": 2}'::jsonb),
      waypost.publish('https://app.example/3', '\\x00ff'::bytea),
      waypost.publish('https://app.example/4', null::text)`);
    const messages = await takeDeliveries(server, 4);
    expect(messages.map(({ body }) => Buffer.from(body).toString("latin1"))).toEqual([
      Buffer.from("grün").toString("latin1"),
      '{"a": 2, "b": 1}',
      "\x00\xff",
      "",
    ]);
    expect(messages.map(({ headers }) => headers)).toEqual([
      [],
      [["Content-Type", "application/json"]],
      [],
      [],
    ]);
  });

  test("starts a run whose id is made of the key", async () => {
    const { server, sql } = await start();
    const { rows } = await sql.query(`select waypost.trigger('https://app.example/w', '{"a": 1}') as key`);
    const [message] = await takeDeliveries(server, 1);
    expect(message).toMatchObject({ url: "https://app.example/w" });
    const { body } = await server.ask("GET", `/v2/workflows/logs?workflowRunId=wfr_${rows[0].key}`);
    expect(body.runs).toMatchObject([
      { workflowRunId: `wfr_${rows[0].key}`, workflowUrl: "https://app.example/w" },
    ]);
  });

  test("publishes to URL groups and through queues", async () => {
    const { server, sql, count } = await start();
    const endpoints = [{ url: "https://one.example/" }, { url: "https://two.example/" }];
    await server.ask("POST", "/v2/topics/all/endpoints", { body: JSON.stringify({ endpoints }) });
    await sql.query(`select waypost.publish('all', 'x', '{"Svc-Queue-Name": "q"}')`);
    await expect.poll(() => count("outbox")).toBe(0);
    expect((await sql.query("select reason from waypost.outbox_rejected")).rows).toEqual([]);
    const readLag = async () => (await server.ask("GET", "/v2/queues/q")).body.lag;
    await expect.poll(readLag).toBe(2);
  });

  test("finds the rows of a transaction that was open for long", async () => {
    const { server, sql, url } = await start();
    const slow = await connectTo(url);
    await slow.query("begin; select waypost.publish('https://app.example/slow', 'x')");
    await sql.query("select waypost.publish('https://app.example/quick', 'x')");
    await takeDeliveries(server, 1);
    await slow.query("commit");
    expect((await takeDeliveries(server, 1))[0]?.url).toBe("https://app.example/slow");
  });

  test("is woken by a row while it sleeps", async () => {
    const { server, sql } = await start();
    const isAsleep = async () => (await sql.query("select is_asleep from waypost.relay")).rows[0].is_asleep;
    await expect.poll(isAsleep).toBe(true);
    await sql.query("select waypost.publish('https://app.example/', 'x')");
    await takeDeliveries(server, 1);
    expect(await isAsleep()).toBe(false);
  });
});

/** Calls whose rows are rejected, and the reasons. */
const hostile: readonly (readonly [call: string, reason: RegExp])[] = [
  ["publish('ftp://app.example/', 'x')", /destination/],
  ["publish('no-such-group', 'x')", /no-such-group/],
  [`publish('https://app.example/', 'x', '{"Svc-Retries": "many"}')`, /Svc-Retries/],
  [`publish('https://app.example/', 'x', '{"Svc-Nonsense": "1"}')`, /Svc-Nonsense/],
  [`publish('https://app.example/', 'x', '{"Other": "1"}')`, /"Other" is not a setting/],
  [`publish('https://app.example/', 'x', '{"Svc-Delay": {"a": 1}}')`, /Svc-Delay/],
  [`publish('https://app.example/', 'x', '{"Svc-Cron": "* * * * *"}')`, /Svc-Cron/],
  [`publish('https://app.example/', 'x', '{"Svc-Workflow-RunId": "wfr_1"}')`, /function trigger/],
  [`publish('https://app.example/', 'x', '{"Upstash-Workflow-RunId": "wfr_1"}')`, /function trigger/],
  [`publish('https://app.example/', 'x', '{}', '{"Svc-Delay": "1s"}')`, /is a setting/],
  [`publish('https://app.example/', 'x', '{}', '{"X-A": "a\\r\\nX-B: b"}')`, /X-A/],
  [`publish('https://app.example/', 'x', '{}', '{"bad name": "a"}')`, /bad name/i],
  [`publish('https://app.example/', 'x', jsonb_build_object('Svc-Label', repeat('x', 200000)))`, /settings/],
  [`publish('https://app.example/' || repeat('x', 20000), 'x')`, /destination/],
  [`publish('https://app.example/', convert_to(repeat('x', 12000000), 'UTF8'))`, /12000000 bytes/],
  [`trigger('all', 'x')`, /destination/],
  [`trigger('https://app.example/', 'x', '{"Svc-Workflow-Init": "true"}')`, /Workflow-Init/],
  [`publish('https://app.example/', 'x', '{"Svc-Queue-Name": "no name"}')`, /queue/],
];

describe("rows that no message can be made of", () => {
  test("are kept as rejected, each with its reason, and stop no other", async () => {
    const { server, sql, count } = await start();
    await sql.query(hostile.map(([call]) => `select waypost.${call}`).join("; "));
    await sql.query("select waypost.publish('https://app.example/after', 'x')");
    const [message] = await takeDeliveries(server, 1);
    expect(message?.url).toBe("https://app.example/after");
    await expect.poll(() => count("outbox")).toBe(0);
    const { rows } = await sql.query("select reason from waypost.outbox_rejected order by id");
    expect(rows.map(({ reason }) => reason)).toEqual(
      hostile.map(([, reason]) => expect.stringMatching(reason)),
    );
  });

  test("are put back by one statement", async () => {
    const { server, sql, count } = await start();
    await sql.query("select waypost.publish('later', 'x')");
    await expect.poll(() => count("outbox_rejected")).toBe(1);
    const endpoints = [{ url: "https://one.example/" }];
    await server.ask("POST", "/v2/topics/later/endpoints", { body: JSON.stringify({ endpoints }) });
    expect((await sql.query("select waypost.put_back() as number")).rows).toEqual([{ number: "1" }]);
    await takeDeliveries(server, 1);
    expect(await count("outbox_rejected")).toBe(0);
  });
});

describe("the marks of rows", () => {
  test("publish a row once, although its deletion was lost, and its message has ended", async () => {
    const { server, sql, relay, count } = await start();
    await sql.query(`create function stop_delete() returns trigger language plpgsql as
      $$ begin raise exception 'no'; end $$`);
    await sql.query(
      `create trigger stop before delete on waypost.outbox for each row execute function stop_delete()`,
    );
    await sql.query("select waypost.publish('https://app.example/', 'x', '{\"Svc-Retries\": 0}')");
    await expect.poll(() => server.deliveries.length).toBe(1);
    await server.settle(server.delivery(), { status: 500 });
    await expect.poll(async () => (await server.store.read.outboxes("acc_1"))[0]?.error).toMatch(/P0001/);
    const { body } = await server.ask("GET", "/v2/dlq");
    await server.ask("DELETE", `/v2/dlq/${body.messages[0].dlqId}`);
    expect(body.messages[0].labels).toEqual(["outbox:shop"]);
    await sql.query("drop trigger stop on waypost.outbox");
    await expect.poll(() => count("outbox")).toBe(0);
    expect(server.deliveries).toEqual([]);
    await relay.stop();
    expect(await server.store.read.outboxes("acc_1")).toMatchObject([{ taken: 1 }]);
  });
});

describe("refusals that may pass", () => {
  test("leave the rows, and say why", async () => {
    const { server, sql, count } = await start();
    const readState = async () => (await server.store.read.outboxes("acc_1"))[0];
    await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    await sql.query("select waypost.publish('https://app.example/', 'x')");
    await expect.poll(async () => (await readState())?.error).toMatch(/disabled/);
    expect(await count("outbox")).toBe(1);
    await server.store.execute("changeAccount", { account: "acc_1", change: { state: "active" } });
    await takeDeliveries(server, 1);
    await expect.poll(async () => (await readState())?.error).toBe(null);
  });
});
