import { copyFileSync, readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { startDeliveryChecker } from "./deliveryChecker.ts";
import { ask } from "./nodes.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

const timeout = 90_000;
const preload = { NODE_OPTIONS: `--import=${new URL("./shortLease.ts", import.meta.url).href}` };

const migrateStore = (from: string, to: string) => runWaypost(["migrate-store", "--from", from, "--to", to]);

async function publish(path: string, headers: Record<string, string> = {}): Promise<void> {
  const options = { method: "POST", headers: { authorization: `Bearer ${developmentToken}`, ...headers }, body: "a body" } as const;
  const { statusCode, body } = await request(path, options);
  expect([statusCode, await body.text()]).toEqual([200, expect.any(String)]);
}

test(
  "what a server has accepted is delivered from where it is moved to, also what it was sending when it died",
  { tags: "long", timeout },
  async () => {
    const data = temporaryFolder();
    const url = await freshDatabase();
    const judge = await startDeliveryChecker();
    const arrived = (): string[] => judge.calls.map(({ limiter }) => limiter);
    const where = ["dev", "--port", "0"];
    const old = await startWaypost([...where, "--data", data], preload);
    judge.slow("/first", 60_000);
    judge.slow("/second", 0);
    judge.slow("/later", 0);
    await publish(`${old.url}/v2/enqueue/q/${judge.url}/first`);
    await publish(`${old.url}/v2/enqueue/q/${judge.url}/second`);
    await publish(`${old.url}/v2/publish/${judge.url}/later`, { "svc-delay": "8s" });
    while (arrived().length < 1) await pause(10);

    expect(await migrateStore(`sqlite:${data}`, url).ended).toMatchObject({
      code: 2,
      err: `waypost: ${data}: a waypost server is using it; stop that one first\n`,
    });
    old.kill("SIGKILL");
    await old.ended;
    const secret = url.replace("postgres@", "postgres:hushhush@");
    const moved = await migrateStore(`sqlite:${data}`, secret).ended;
    expect(moved).toMatchObject({ code: 0, err: "" });
    expect(moved.out).toContain("messages: 3 rows, the same on both sides, SHA-256 ");
    expect(moved.out).toMatch(
      /^moved everything from sqlite:.* to postgres:\/\/127.0.0.1:\d+\/test_\w+; start no server on sqlite:.* again/m,
    );
    expect(moved.out).not.toContain("hushhush");

    expect(moved.out).toContain("need the keys that those of sqlite:");
    expect(moved.out).not.toContain(readFileSync(join(data, "keys"), "utf8").split(":")[1]?.trim());

    // The secrets are sealed as they were, so servers need the same keys: none, or others of the same version, will not do.
    const there = ["start", "--port", "0", "--database-url", url];
    for (const keys of ["", `1:${Buffer.alloc(32).toString("base64")}`]) {
      const refused = await runWaypost(there, keys === "" ? {} : { WAYPOST_KEYS: keys }).ended;
      expect(refused).toMatchObject({ code: 2, err: expect.stringMatching(/^waypost: keys: .*key 1.*give (it|back)/m) });
    }

    judge.slow("/first", 0);
    const keys = { WAYPOST_KEYS_FILE: join(data, "keys") };
    const server = await startWaypost([...where, "--database-url", url], { ...preload, ...keys });
    expect(server.out()).not.toContain("WAYPOST_TOKEN");
    while (arrived().length < 4) await pause(20);
    // The one that was being sent comes again, before the next of its queue.
    expect(arrived().filter((name) => name !== "later")).toEqual(["first", "first", "second"]);
    expect(arrived()).toContain("later");

    // And back again, where all of it is there still.
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
      err: expect.stringContaining("give back the keys that the secrets of this store were sealed with"),
    });
    copyFileSync(join(data, "keys"), join(back, "keys"));
    const last = await startWaypost([...where, "--data", back]);
    await publish(`${last.url}/v2/publish/${judge.url}/later`);
    while (arrived().length < 5) await pause(20);
  },
);

test("a move that is killed goes on where it was, and nobody serves a part", { tags: "long", timeout }, async () => {
  const data = temporaryFolder();
  const url = await freshDatabase();
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  server.kill("SIGTERM");
  await server.ended;
  const rows = 60_000;
  const file = new DatabaseSync(join(data, "waypost.db"));
  file.exec(`
    insert into log with recursive n (i) as (select 1 union all select i + 1 from n where i < ${rows})
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
    err: expect.stringContaining("only a part of a store was moved here: run the same waypost migrate-store again"),
  });

  const second = await migrateStore(`sqlite:${data}`, url).ended;
  expect(second).toMatchObject({ code: 0, err: "" });
  expect(second.out).toContain("going on with what was moved to postgres://");
  expect(second.out).toContain(`log: ${rows} rows, the same on both sides`);
  expect(second.out).not.toContain("log: 10000 of");
  expect(await migrateStore(`sqlite:${data}`, url).ended).toMatchObject({
    code: 2,
    err: expect.stringContaining("there is other data already"),
  });
});

test("what cannot be moved is said in words", async () => {
  const data = temporaryFolder();
  const rows: [from: string, to: string, says: string][] = [
    [`sqlite:${data}/none`, "postgres://127.0.0.1:1/x", `--from: there is no store in ${data}/none`],
    ["mysql://x", "sqlite:y", "--from: must be sqlite:<folder> or postgres://…, such as sqlite:./data"],
    ["sqlite:x", "sqlite:x", "--from and --to are the same store"],
    ["postgres://127.0.0.1:1/x", "sqlite:y", "PostgreSQL cannot be reached"],
  ];
  for (const [from, to, says] of rows) {
    expect(await migrateStore(from, to).ended).toMatchObject({ code: 2, err: expect.stringContaining(`waypost: ${says}`) });
  }
});
