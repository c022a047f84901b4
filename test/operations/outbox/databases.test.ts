import { createServer } from "node:net";
import { once } from "node:events";
import { describe, expect, onTestFinished, test } from "vitest";
import { createEgress } from "../../../src/engine/delivery/http/egress.ts";
import { findOutboxConditions } from "../../../src/operations/outbox/conditions.ts";
import { openDatabase, changeOwner } from "../../../src/operations/outbox/database.ts";
import { createTestServer } from "../../api/testServer.ts";
import { startPooler } from "../../engine/store/postgres/postgresPooler.ts";
import { startPostgres } from "../../postgres.ts";
import { makeOutbox, openUserDatabase, relayParts, startRelay } from "./userDatabase.ts";

const publishOne = "select waypost.publish('https://app.example/', 'x')";

describe("the database of a user", () => {
  test("has a public address, unless the operator allows it, and its error hides the URL", async () => {
    const server = await createTestServer();
    const { url } = await openUserDatabase();
    const strict = createEgress({ allow: [] });
    const parts = relayParts(server.store, {
      connect: (target) => strict.open({ ...target, timeout: 1_000 }),
    });
    await expect(openDatabase(makeOutbox(url), parts)).rejects.toThrow(
      "the address of the database is not public; the operator can allow it with WAYPOST_EGRESS_ALLOW",
    );
    const proxied = createEgress({
      allow: [],
      proxy: { hostname: "proxy.example", port: 1, authorization: null },
    });
    await expect(
      openDatabase(makeOutbox(url), {
        ...parts,
        connect: (target) => proxied.open({ ...target, timeout: 1_000 }),
      }),
    ).rejects.toThrow("the database cannot be reached");
    await expect(
      openDatabase({ ...makeOutbox(url), allowedHosts: ["other.example"] }, relayParts(server.store)),
    ).rejects.toThrow("the host of the database is not allowed for this account");
  });

  test.each([
    ["postgres://nobody-here:hidden@127.0.0.1:PORT/DB?sslmode=disable", /refuses the login/],
    ["postgres://postgres:any@127.0.0.1:PORT/no_such_database?sslmode=disable", /does not exist/],
    ["postgres://postgres:any@127.0.0.1:PORT/DB", /does not support TLS/],
    ["postgres://postgres:any@127.0.0.1:1/DB?sslmode=disable", /refuses connections/],
  ])("%s fails with one sentence", async (template, reason) => {
    const server = await createTestServer();
    const { url } = await openUserDatabase();
    const { port, pathname } = new URL(url);
    const wrong = template.replace("PORT", port).replace("DB", pathname.slice(1));
    const error: unknown = await openDatabase(makeOutbox(wrong), relayParts(server.store)).catch(
      (failure: unknown) => failure,
    );
    expect(error).toMatchObject({ message: expect.stringMatching(reason) });
    for (const part of ["nobody-here", "hidden", "no_such_database", port])
      expect(String(error)).not.toContain(part);
  });

  test("that is silent is given up in time", async () => {
    const server = await createTestServer();
    const silent = createServer(() => undefined).listen(0, "127.0.0.1");
    onTestFinished(() => void silent.close());
    await once(silent, "listening");
    const address = silent.address();
    const port = typeof address === "object" ? address?.port : 0;
    const url = `postgres://a:b@127.0.0.1:${port}/c?sslmode=disable`;
    await expect(openDatabase(makeOutbox(url), relayParts(server.store))).rejects.toThrow(
      "the database cannot be reached, or does not answer in time",
    );
  });

  test("needs the schema in the version of the server", async () => {
    const server = await createTestServer();
    const { url, sql } = await openUserDatabase({ schema: "jobs_2" });
    const claim = async (schema: string) => {
      const outbox = makeOutbox(url, { schema });
      const database = await openDatabase(outbox, relayParts(server.store));
      await changeOwner(database, outbox.setting, "claim").finally(() => database.close());
    };
    await expect(claim("waypost")).rejects.toThrow('run the SQL of "waypost outbox sql"');
    await claim("jobs_2");
    await sql.query("update jobs_2.relay set version = 7");
    await expect(claim("jobs_2")).rejects.toThrow("the schema has version 7, and this server needs 1");
  });
});

describe("a relay", () => {
  test("takes rows through a pooler in transaction mode", async () => {
    const server = await createTestServer();
    const user = await openUserDatabase();
    const pooled = await startPooler(user.url, { connections: 1 });
    await startRelay(relayParts(server.store), makeOutbox(pooled, { isPooled: true }));
    for (let row = 1; row <= 3; row++) {
      await user.sql.query(publishOne);
      await expect.poll(() => server.deliveries.length).toBe(row);
    }
    expect((await user.sql.query("select is_asleep from waypost.relay")).rows).toEqual([
      { is_asleep: false },
    ]);
  });

  test("takes no rows while all deliveries are on hold", async () => {
    const server = await createTestServer();
    const user = await openUserDatabase();
    let isHeld = true;
    await startRelay(relayParts(server.store, { isOnHold: () => isHeld }), makeOutbox(user.url));
    await user.sql.query(publishOne);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(server.deliveries).toEqual([]);
    expect((await user.sql.query("select owner from waypost.relay")).rows).toEqual([{ owner: null }]);
    isHeld = false;
    await expect.poll(() => server.deliveries.length).toBe(1);
  });

  test("refuses the outbox of another server, until it takes it over", async () => {
    const user = await openUserDatabase();
    const [ours, theirs] = [await createTestServer(), await createTestServer()];
    await startRelay(relayParts(ours.store), makeOutbox(user.url, { owner: "own_1" }));
    await user.sql.query(publishOne);
    await expect.poll(() => ours.deliveries.length).toBe(1);
    const other = makeOutbox(user.url, { owner: "own_2" });
    await startRelay(relayParts(theirs.store), other);
    const readError = async (server: typeof ours) => (await server.store.read.outboxes("acc_1"))[0]?.error;
    await expect.poll(() => readError(theirs)).toMatch(/belongs to another server/);
    const database = await openDatabase(other, relayParts(theirs.store));
    await changeOwner(database, other.setting, "take over").finally(() => database.close());
    await user.sql.query(publishOne);
    await expect.poll(() => theirs.deliveries.length).toBe(1);
    await expect.poll(() => readError(ours)).toMatch(/belongs to another server/);
    expect(ours.deliveries).toHaveLength(1);
  });

  test("continues when the database is back, and says meanwhile what is wrong", async () => {
    const server = await createTestServer();
    const postgres = await startPostgres({ more: { synchronous_commit: "on" } });
    onTestFinished(() => postgres.stop());
    const user = await openUserDatabase({}, postgres.url);
    await startRelay(relayParts(server.store), makeOutbox(user.url));
    await user.sql.query(publishOne);
    await expect.poll(() => server.deliveries.length).toBe(1);
    await user.sql.query("begin").then(() => user.sql.query(publishOne));
    await user.sql.query("commit");
    await postgres.down("SIGKILL");
    const conditions = () => findOutboxConditions(server.store, "acc_1", Date.now());
    await expect.poll(conditions).toMatchObject([
      {
        kind: "outbox.failing",
        level: "problem",
        subject: "shop",
        text: expect.stringMatching(/^Rows of outbox/),
      },
    ]);
    await postgres.up();
    await expect.poll(() => server.deliveries.length).toBe(2);
    await expect.poll(conditions).toEqual([]);
  });
});

test("conditions name an outbox that is late, and one that has rejected rows of late", async () => {
  const server = await createTestServer();
  const user = await openUserDatabase();
  await startRelay(relayParts(server.store), makeOutbox(user.url));
  await user.sql.query("select waypost.publish('no-such-group', 'x')");
  const read = async () =>
    (await findOutboxConditions(server.store, "acc_1", Date.now())).map(
      ({ kind, text }) => `${kind}: ${text}`,
    );
  await expect
    .poll(read)
    .toEqual([expect.stringMatching(/^outbox\.rejecting: Outbox shop has 1 rejected row: .*no-such-group/)]);
  expect(await findOutboxConditions(server.store, "acc_1", Date.now() + 3_700_000)).toEqual([]);
  const leased = await server.store.execute("takeOutbox", { account: "acc_1", name: "shop", isAlone: true });
  await server.store.execute("noteOutbox", {
    ...{ account: "acc_1", name: "shop", number: leased?.lease?.number ?? 0 },
    status: { oldestAt: Date.now() - 90_000, waiting: 3, rejected: 0 },
  });
  expect(await read()).toEqual(["outbox.late: The oldest row of outbox shop has waited for 2 min"]);
  expect(await findOutboxConditions(server.store, "acc_2", Date.now())).toEqual([]);
});
