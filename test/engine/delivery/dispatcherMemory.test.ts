import { expect, onTestFinished, test } from "vitest";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import { parseHost } from "../../../src/engine/core/values/url.ts";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import type { ResponseRoom } from "../../../src/engine/delivery/http/bodyBytes.ts";
import type { Deliver } from "../../../src/engine/delivery/deliver.ts";
import { Dispatcher } from "../../../src/engine/delivery/dispatcher.ts";
import { Memory, memoryStore } from "../../model/memoryStore.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { makeInput } from "../core/commandRunner.ts";

test("long responses share the memory for bodies with requests until their outcomes are stored", async () => {
  const random = Math.random;
  const memory = memoryStore(
    { node: "nod_a", now: () => Date.now(), random, newId: createIdGenerator(random) },
    new Memory(),
  );
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
  const rooms: ResponseRoom[] = [];
  const ends: ((outcome: Partial<Outcome>) => void)[] = [];
  const bothSent = Promise.withResolvers<void>();
  const deliver: Deliver = ({ message, attempt }, room) => {
    const { promise: outcome, resolve } = Promise.withResolvers<Outcome>();
    const identity = {
      account: message.account,
      messageId: message.id,
      host: parseHost(message.url),
      attempt,
    };
    if (room) rooms.push(room);
    ends.push((end) =>
      resolve({
        ...identity,
        status: 200,
        headers: [],
        body: new Uint8Array(0),
        error: null,
        took: 1,
        ...end,
      }),
    );
    if (rooms.length === 2) bothSent.resolve();
    return { outcome, abort: () => undefined };
  };
  const log = { attempt: () => undefined, failure: (what: string) => expect.unreachable(what) };
  const capacity = { total: 10, perHost: 10, bytes: { total: 1_000, perBatch: 1_000 } };
  const dispatcher = new Dispatcher({ store, deliver, clock: systemClock, log, capacity });
  const account = {
    id: "acme",
    name: "",
    password: "",
    token: "",
    tokenHash: "",
    signingKeys: { current: "", next: "" },
  };
  await store.execute("createAccount", account);
  dispatcher.start();
  onTestFinished(() => dispatcher.stop(0));
  const body = new Uint8Array(100);
  const inputs = ["https://a.example", "https://b.example"].map((url) => makeInput({ url, body }));
  for (const input of inputs) await store.execute("publish", { account: "acme", inputs: [input] });
  await bothSent.promise;
  const [a, b] = rooms;
  expect(dispatcher.readCapacity().bytes.free).toBe(800);
  // The account must leave the last eighth of the 800 free bytes.
  expect([a?.take(500), b?.take(176), b?.take(175), a?.take(1)]).toEqual([true, false, true, false]);
  // Bytes that have been read are always counted.
  a?.add(150);
  const waiting: string[] = [];
  b?.wait(100, () => waiting.push("b"));
  expect(dispatcher.readCapacity().bytes).toMatchObject({
    free: -25,
    byLane: { "acme a.example": 750, "acme b.example": 275 },
  });
  ends[0]?.({ body: new Uint8Array(550) });
  await Promise.resolve();
  expect(dispatcher.readCapacity().bytes.free).toBeLessThanOrEqual(75);
  expect(waiting).toEqual([]);
  onDisk.resolve();
  await isStored.promise;
  await expect
    .poll(() => dispatcher.readCapacity().bytes)
    .toMatchObject({ free: 625, byLane: { "acme b.example": 375 } });
  expect(waiting).toEqual(["b"]);
  expect(dispatcher.readCapacity().heldByAccount?.bytes).toEqual({
    total: 1_000,
    byAccount: new Map([["acme", 375]]),
  });
  ends[1]?.({ status: 500, body: new Uint8Array(300) });
  await expect.poll(() => dispatcher.readCapacity().bytes.free).toBe(1_000);
});
