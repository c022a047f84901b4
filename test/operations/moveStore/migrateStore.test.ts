import { copyFileSync, readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { startDeliveryChecker } from "../../server/deliveryChecker.ts";
import { ask } from "../../server/nodes.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../../server/waypost.ts";

const preload = { NODE_OPTIONS: `--import=${new URL("../../server/shortLease.ts", import.meta.url).href}` };

const migrateStore = (from: string, to: string) => runWaypost(["migrate-store", "--from", from, "--to", to]);

async function publish(path: string, headers: Record<string, string> = {}): Promise<void> {
  const options = {
    method: "POST",
    headers: { authorization: `Bearer ${developmentToken}`, ...headers },
    body: "a body",
  } as const;
  const { statusCode, body } = await request(path, options);
  expect([statusCode, await body.text()]).toEqual([200, expect.any(String)]);
}

test(
  "messages accepted before a move are delivered after it, also those in flight when the server died",
  { tags: "long" },
  async () => {
    const data = temporaryFolder();
    const url = await freshDatabase();
    const checker = await startDeliveryChecker();
    const arrived = (): string[] => checker.calls.map(({ limiter }) => limiter);
    const where = ["dev", "--port", "0"];
    const old = await startWaypost([...where, "--data", data], preload);
    checker.slow("/first", 600_000);
    checker.slow("/second", 0);
    checker.slow("/later", 0);
    await publish(`${old.url}/v2/enqueue/q/${checker.url}/first`);
    await publish(`${old.url}/v2/enqueue/q/${checker.url}/second`);
    while (arrived().length < 1) await pause(10);

    expect(await migrateStore(`sqlite:${data}`, url).ended).toMatchObject({
      code: 2,
      err: `waypost: ${data}: in use by a waypost server; stop the server first\n`,
    });
    // It is published right before the end of its server, so that it is not due before.
    await publish(`${old.url}/v2/publish/${checker.url}/later`, { "svc-delay": "8s" });
    old.kill("SIGKILL");
    await old.ended;
    const secret = url.replace("postgres@", "postgres:hushhush@");
    const moved = await migrateStore(`sqlite:${data}`, secret).ended;
    expect(moved).toMatchObject({ code: 0, err: "" });
    expect(moved.out).toContain("messages: 3 rows, identical on both sides, SHA-256 ");
    expect(moved.out).toMatch(
      /^moved everything from sqlite:.* to postgres:\/\/127.0.0.1:\d+\/test_\w+; start no server on sqlite:/m,
    );
    expect(moved.out).not.toContain("hushhush");

    expect(moved.out).toContain("need the keys of sqlite:");
    expect(moved.out).not.toContain(readFileSync(join(data, "keys"), "utf8").split(":")[1]?.trim());

    // Secrets stay encrypted, so servers need the same keys: no keys, or others of the same version, are
    // refused.
    const there = ["start", "--port", "0", "--database-url", url];
    for (const keys of ["", `1:${Buffer.alloc(32).toString("base64")}`]) {
      const refused = await runWaypost(there, keys === "" ? {} : { WAYPOST_KEYS: keys }).ended;
      expect(refused).toMatchObject({
        code: 2,
        err: expect.stringMatching(/^waypost: keys: .*key 1.*restore/m),
      });
    }

    checker.slow("/first", 0);
    const keys = { WAYPOST_KEYS_FILE: join(data, "keys") };
    const server = await startWaypost([...where, "--database-url", url], { ...preload, ...keys });
    while (arrived().length < 4) await pause(20);
    // The message that was being sent is repeated before the next one of its queue.
    expect(arrived().filter((name) => name !== "later")).toEqual(["first", "first", "second"]);
    expect(arrived()).toContain("later");

    // Back again, to a store that has everything.
    const back = temporaryFolder();
    expect(await migrateStore(url, `sqlite:${back}`).ended).toMatchObject({
      code: 2,
      err: expect.stringContaining("a waypost server is using it"),
    });
    server.kill("SIGTERM");
    await server.ended;
    expect(await migrateStore(url, `sqlite:${back}`).ended).toMatchObject({ code: 0, err: "" });
    expect(await runWaypost([...where, "--data", back]).ended).toMatchObject({
      code: 2,
      err: expect.stringContaining("restore the keys of this store from a copy"),
    });
    copyFileSync(join(data, "keys"), join(back, "keys"));
    const last = await startWaypost([...where, "--data", back]);
    await publish(`${last.url}/v2/publish/${checker.url}/later`);
    while (arrived().length < 5) await pause(20);
  },
);

test("an interrupted move is continued, and no server uses a part of a store", { tags: "long" }, async () => {
  const data = temporaryFolder();
  const url = await freshDatabase();
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  server.kill("SIGTERM");
  await server.ended;
  const rows = 60_000;
  const file = new DatabaseSync(join(data, "waypost.db"));
  file.exec(`
    insert into log (account, id, message_id, time, states, status, detail, body)
    with recursive n (i) as (select 1 union all select i + 1 from n where i < ${rows})
    select 'acc', printf('1700000000000-%09d', i), 'msg', i, 'DELIVERED', 200, null, randomblob(200) from n`);
  file.close();

  const first = migrateStore(`sqlite:${data}`, url);
  while (!first.out().includes("log: 10000 of 60000")) await pause(5);
  first.kill("SIGKILL");
  await first.ended;
  const present = Number((await ask(url, "select count(*) as n from log"))[0]?.n);
  expect(present).toBeGreaterThanOrEqual(10_000);
  expect(await runWaypost(["start", "--port", "0", "--database-url", url]).ended).toMatchObject({
    code: 2,
    err: expect.stringContaining(
      "only a part of a store was moved here: run the same waypost migrate-store again",
    ),
  });

  const second = await migrateStore(`sqlite:${data}`, url).ended;
  expect(second).toMatchObject({ code: 0, err: "" });
  expect(second.out).toContain("continuing the earlier move to postgres://");
  expect(second.out).toContain(`log: ${rows} rows, identical on both sides`);
  expect(second.out).not.toContain("log: 10000 of");
  expect(await migrateStore(`sqlite:${data}`, url).ended).toMatchObject({
    code: 2,
    err: expect.stringContaining("everything in this store was moved to postgres://"),
  });
});

test("a move that is not possible is refused with a reason", async () => {
  const data = temporaryFolder();
  const rows: [from: string, to: string, says: string][] = [
    [`sqlite:${data}/none`, "postgres://127.0.0.1:1/x", `--from: no store found in ${data}/none`],
    ["mysql://x", "sqlite:y", "--from: use sqlite:<folder> or postgres://…, such as sqlite:./data"],
    ["sqlite:x", "sqlite:x", "--from and --to are the same store"],
    ["postgres://127.0.0.1:1/x", "sqlite:y", "PostgreSQL cannot be reached"],
  ];
  for (const [from, to, says] of rows) {
    expect(await migrateStore(from, to).ended).toMatchObject({
      code: 2,
      err: expect.stringContaining(`waypost: ${says}`),
    });
  }
});
