import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import type { Clock } from "../../../src/engine/clock/clock.ts";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import { findOutboxConditions } from "../../../src/operations/outbox/conditions.ts";
import { ScanRange } from "../../../src/operations/outbox/round.ts";
import { hasRows } from "../../../src/operations/outbox/statements.ts";
import { createTestServer } from "../../api/testServer.ts";
import { startPostgres } from "../../postgres.ts";
import type { UserDatabase } from "./userDatabase.ts";
import { connectTo, makeOutbox, openUserDatabase, relayParts, startRelay } from "./userDatabase.ts";

const patient = { interval: 50 };
const minute = 60_000;

/** Returns a clock on which `speed` seconds pass in each second. */
function createFastClock(speed: number): Clock {
  const startedAt = Date.now();
  const real = (time: number): number => startedAt + (time - startedAt) / speed;
  return {
    now: () => startedAt + (Date.now() - startedAt) * speed,
    sleep: (until, wake) => systemClock.sleep(real(until), wake),
  };
}

/** Publishes the rows from `from` to `to`. */
const publish = ({ sql }: Pick<UserDatabase, "sql">, from: number, to: number) =>
  sql.query(
    "select waypost.publish('https://app.example/', n::text) from generate_series($1::int, $2) as n",
    [from, to],
  );

test("ten minutes without the database lose nothing and delay no other outbox", async () => {
  const clock = createFastClock(150);
  const server = await createTestServer();
  const postgres = await startPostgres({ more: { synchronous_commit: "on" } });
  onTestFinished(() => postgres.stop());
  const user = await openUserDatabase({}, postgres.url);
  const other = await openUserDatabase();
  const port = Number(new URL(user.url).port);
  const parts = relayParts(server.store, { clock });
  let attempts = 0;
  const connect: typeof parts.connect = (target) => {
    if (target.port === port) attempts++;
    return parts.connect(target);
  };
  await startRelay({ ...parts, connect }, makeOutbox(user.url));
  await startRelay(parts, makeOutbox(other.url, { name: "other" }));
  const rowsOf = (label: string): string[] =>
    server.deliveries.flatMap(({ message }) =>
      message.labels.includes(`outbox:${label}`) ? [Buffer.from(message.body).toString()] : [],
    );
  await publish(user, 1, 1);
  await expect.poll(() => rowsOf("shop").length, patient).toBe(1);

  await publish(user, 2, 700);
  await postgres.down("SIGKILL");
  [attempts] = [0];
  const downAt = clock.now();
  for (let row = 1; clock.now() - downAt < 10 * minute; row++) {
    await publish(other, row, row);
    await expect.poll(() => rowsOf("other").length, patient).toBe(row);
    await pause(100);
  }
  const find = () => findOutboxConditions(server.store, "acc_1", clock.now());
  const [condition, ...others] = await find();
  expect(condition).toMatchObject({ kind: "outbox.failing", level: "problem", subject: "shop" });
  expect(others).toEqual([]);
  expect(clock.now() - (condition?.since ?? 0)).toBeGreaterThan(8 * minute);
  // The pause between attempts grows to half a minute.
  expect(attempts).toBeGreaterThan(5);
  expect(attempts).toBeLessThan(40);

  await postgres.up();
  await expect.poll(() => rowsOf("shop").length, patient).toBe(700);
  await expect.poll(find, patient).toEqual([]);
  expect(new Set(rowsOf("shop")).size).toBe(700);
});

/** Returns the pages that a look for rows after an id reads. */
async function countPages({ sql }: Pick<UserDatabase, "sql">, after: string): Promise<number> {
  const { rows } = await sql.query(`explain (analyze, buffers, format json) ${hasRows("waypost", after)}`);
  const plan = rows[0]["QUERY PLAN"][0].Plan;
  return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
}

test("rows that a held transaction keeps are hardly read again, and vanish after it", async () => {
  const server = await createTestServer();
  const user = await openUserDatabase();
  const holder = await connectTo(user.url);
  await holder.query("begin isolation level repeatable read; select 1 from waypost.relay");
  await startRelay(relayParts(server.store), makeOutbox(user.url));
  await publish(user, 1, 5_000);
  await expect.poll(() => server.deliveries.length, patient).toBe(5_000);
  // The rows are deleted, and the database cannot remove them.
  await expect
    .poll(async () => (await user.sql.query("select 1 from waypost.outbox")).rows.length, patient)
    .toBe(0);
  await user.sql.query("vacuum waypost.outbox");
  const { rows } = await user.sql.query("select last_value::text as last from waypost.outbox_id_seq");
  let now = 0;
  const range = new ScanRange({ now: () => now, sleep: async () => undefined });
  range.begin();
  range.passed(rows[0].last);
  range.end();
  now = 5_900;
  range.begin();
  range.end();
  // A round begins where rows were taken more than five seconds ago, until it is time to look at all again.
  now = 6_000;
  const after = range.begin();
  expect(after).toBe(rows[0].last);
  const [whole, recent] = [await countPages(user, "0"), await countPages(user, after)];
  expect(whole).toBeGreaterThan(50);
  expect(recent).toBeLessThan(10);
  // New rows are taken meanwhile, and nothing is late.
  await publish(user, 5_001, 5_001);
  await expect.poll(() => server.deliveries.length, patient).toBe(5_001);
  expect(await findOutboxConditions(server.store, "acc_1", Date.now())).toEqual([]);
  await holder.query("rollback");
  await user.sql.query("vacuum waypost.outbox");
  expect(await countPages(user, "0")).toBeLessThan(10);
});
