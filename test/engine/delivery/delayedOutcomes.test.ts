import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { alarm, elapsed, systemClock } from "../../../src/engine/clock/clock.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import { parseHost } from "../../../src/engine/core/values/url.ts";
import type { Deliver } from "../../../src/engine/delivery/deliver.ts";
import { Dispatcher } from "../../../src/engine/delivery/dispatcher.ts";
import { embeddedStore } from "../../../src/engine/store/sqlite/embeddedStore.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { makeInput } from "../core/commandRunner.ts";
import { acme } from "../../simulation/timedDeliver.ts";
import { createTestFolder } from "../store/storeFixture.ts";

const deliver: Deliver = ({ message, attempt }) => ({
  outcome: Promise.resolve({
    account: message.account,
    messageId: message.id,
    host: parseHost(message.url),
    attempt,
    status: 200,
    headers: [],
    body: new Uint8Array(0),
    error: null,
    took: 1,
  }),
  abort: () => undefined,
});

/** Delivers five messages to one host, and returns for each outcome whether it may wait for a batch. */
async function deliverFive(perHost: number): Promise<unknown[]> {
  const random = Math.random;
  const momentSource = { node: "nod_a", now: Date.now, random, newId: createIdGenerator(random) };
  const store = await embeddedStore({
    path: join(createTestFolder(), "store.db"),
    pause,
    alarm,
    elapsed,
    momentSource,
  });
  onTestFinished(() => store.close());
  const waits: unknown[] = [];
  const execute: Store["execute"] = (name, input, options) => {
    if (name === "settle") waits.push(options?.canWait);
    return store.execute(name, input, options);
  };
  const ended = Promise.withResolvers<void>();
  const log = { attempt: () => waits.length === 5 && ended.resolve(), failure: ended.reject };
  const capacity = { total: 1_024, perHost };
  const dispatcher = new Dispatcher({
    store: { ...store, execute },
    deliver,
    clock: systemClock,
    log,
    capacity,
  });
  await store.execute("createAccount", acme);
  dispatcher.start();
  const inputs = Array.from({ length: 5 }, () => makeInput({ url: "https://a.example/" }));
  await store.execute("publish", { account: "acme", inputs });
  await ended.promise;
  await dispatcher.stop(0);
  return waits;
}

test("an outcome is stored at once if a message may wait for the capacity of its host", async () => {
  expect(await deliverFive(512)).toContain(true);
  expect(await deliverFive(1)).toEqual([false, false, false, false, false]);
});
