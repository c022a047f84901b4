import { expect, onTestFinished, test } from "vitest";
import { idMaker } from "../../src/core/ids.ts";
import type { Outcome } from "../../src/core/message.ts";
import { hostOf } from "../../src/core/parsedUrl.ts";
import { systemClock } from "../../src/engine/clock.ts";
import type { Deliver, Room } from "../../src/engine/deliver.ts";
import { Dispatcher } from "../../src/engine/dispatcher.ts";
import { Memory, memoryStore } from "../../src/store/memory.ts";
import type { Store } from "../../src/store/store.ts";
import { letterOf } from "../core/broker.ts";

test("memory for long responses is that for bodies that are sent, until the outcome is stored", async () => {
  const random = Math.random;
  const memory = memoryStore({ node: "nod_a", now: () => Date.now(), random, newId: idMaker(random) }, new Memory());
  const onDisk = Promise.withResolvers<void>();
  const isStored = Promise.withResolvers<void>();
  const store: Store = {
    ...memory,
    execute: async (name, input) => {
      if (name === "settle") await onDisk.promise;
      const answer = await memory.execute(name, input);
      if (name === "settle") isStored.resolve();
      return answer;
    },
  };
  const rooms: Room[] = [];
  const ends: ((outcome: Partial<Outcome>) => void)[] = [];
  const bothSent = Promise.withResolvers<void>();
  const deliver: Deliver = ({ message, attempt }, room) => {
    const { promise: outcome, resolve } = Promise.withResolvers<Outcome>();
    const of = { account: message.account, messageId: message.id, host: hostOf(message.url), attempt };
    if (room) rooms.push(room);
    ends.push((end) => resolve({ ...of, status: 200, headers: [], body: new Uint8Array(0), error: null, took: 1, ...end }));
    if (rooms.length === 2) bothSent.resolve();
    return { outcome, abort: () => undefined };
  };
  const log = { attempt: () => undefined, trouble: (what: string) => expect.unreachable(what) };
  const hands = { total: 10, perHost: 10, bytes: { total: 1_000, perBatch: 1_000 } };
  const dispatcher = new Dispatcher({ store, deliver, clock: systemClock, log, hands });
  const account = { id: "acme", name: "", password: "", token: "", tokenHash: "", signingKeys: { current: "", next: "" } };
  await store.execute("createAccount", account);
  dispatcher.start();
  onTestFinished(() => dispatcher.stop(0));
  const body = new Uint8Array(100);
  const letters = ["https://a.example", "https://b.example"].map((url) => letterOf({ url, body }));
  for (const letter of letters) await store.execute("publish", { account: "acme", letters: [letter] });
  await bothSent.promise;
  const [a, b] = rooms;
  expect(dispatcher.hands().bytes.free).toBe(800);
  expect([a?.take(500, false), b?.take(301, false), b?.take(300, false), a?.take(1, false)]).toEqual([true, false, true, false]);
  // The answer of a third party goes beyond.
  expect(a?.take(50, true)).toBe(true);
  expect(dispatcher.hands().bytes).toMatchObject({ free: -50, busy: { "acme a.example": 650, "acme b.example": 400 } });
  ends[0]?.({ body: new Uint8Array(550) });
  await Promise.resolve();
  expect(dispatcher.hands().bytes.free).toBeLessThanOrEqual(50);
  onDisk.resolve();
  await isStored.promise;
  await expect.poll(() => dispatcher.hands().bytes).toMatchObject({ free: 600, busy: { "acme b.example": 400 } });
  ends[1]?.({ status: 500, body: new Uint8Array(300) });
  await expect.poll(() => dispatcher.hands().bytes.free).toBe(1_000);
});
