import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import type { Deliver } from "../../../src/engine/delivery/deliver.ts";
import { Dispatcher } from "../../../src/engine/delivery/dispatcher.ts";
import { makeInput } from "../core/commandRunner.ts";
import { Memory, memoryStore } from "../../model/memoryStore.ts";
import { createTestDeliver, rawDestination } from "./http/destination.ts";

const mebibyte = 1024 * 1024;
const size = 8 * mebibyte;

/** Announces 8 MiB, sends some of it and hangs: nothing, a little, or all but the last byte. */
function hang(socket: Socket, way: number): void {
  socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
  const sends = [0, 20_000, 20_000, size - 1][way % 4] ?? 0;
  if (sends > 0) socket.write(Buffer.alloc(sends));
}

test(
  "hosts that announce 8 MiB and hang do not stop the responses of another host",
  { tags: "long" },
  async () => {
    const random = Math.random;
    const source = { node: "nod_a", now: () => Date.now(), random, newId: createIdGenerator(random) };
    const store = memoryStore(source, new Memory());
    let hanging = 0;
    const hangs = await rawDestination((socket) => socket.once("data", () => hang(socket, hanging++)));
    const shop = await rawDestination((socket) =>
      socket.on("data", () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${mebibyte}\r\n\r\n`);
        socket.write(Buffer.alloc(mebibyte));
      }),
    );
    const total = 56 * mebibyte;
    let leastFree = total;
    const outcomes: Outcome[] = [];
    const send = createTestDeliver({
      responseBytes: size,
      connectionsPerOrigin: 100,
      resolve: async () => ["127.0.0.1"],
    });
    const deliver: Deliver = (delivery, room) => {
      const message = { ...delivery.message, keepResponse: true };
      const call = send({ ...delivery, message }, room);
      void call.outcome.then((outcome) => {
        leastFree = Math.min(leastFree, dispatcher.readCapacity().bytes.free);
        outcomes.push(outcome);
      });
      return call;
    };
    const log = { attempt: () => undefined, failure: (what: string) => expect.unreachable(what) };
    const capacity = { total: 100, perHost: 100, bytes: { total, perBatch: total } };
    const dispatcher: Dispatcher = new Dispatcher({ store, deliver, clock: systemClock, log, capacity });
    await store.execute("createAccount", {
      id: "acme",
      name: "",
      password: "",
      token: "",
      tokenHash: "",
      signingKeys: { current: "", next: "" },
    });
    dispatcher.start();
    onTestFinished(() => dispatcher.stop(0));
    const publish = (host: string, port: number): Promise<unknown> =>
      store.execute("publish", {
        account: "acme",
        inputs: [makeInput({ url: `http://${host}:${port}/`, timeout: 600_000 })],
      });
    // 30 of them send enough to take memory. There is memory for 6, and not for 1 MiB more.
    for (let count = 0; count < 40; count++) await publish("hangs.test", hangs);
    await expect.poll(() => dispatcher.readCapacity().bytes.free).toBeLessThan(8 * mebibyte);
    await expect.poll(() => hanging).toBe(40);
    for (let count = 0; count < 10; count++) await publish("shop.test", shop);
    const delivered = (): Outcome[] => outcomes.filter(({ status }) => status === 200);
    await expect.poll(() => delivered().length).toBe(10);
    expect(delivered().map(({ body }) => body.byteLength)).toEqual(
      Array.from({ length: 10 }, () => mebibyte),
    );
    // Responses that held memory failed like any attempt, and are retried.
    const failed = outcomes.filter(({ status }) => status !== 200).map(({ error }) => error);
    expect(failed.length).toBeGreaterThan(0);
    expect(new Set(failed)).toEqual(
      new Set(["less than 32 KiB of the response arrived in 5 s while other responses waited for memory"]),
    );
    // Each response that waits may have read 64 KiB.
    expect(leastFree).toBeGreaterThanOrEqual(-50 * 64 * 1024);
  },
);
