import { expect, test } from "vitest";
import { LineStream } from "../../../src/api/http/lineStream.ts";
import { answerInTime } from "../../../src/api/http/answerTime.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer, portOf, token } from "../testServer.ts";
import { parseReply, request, send } from "../wire.ts";

/** The time within which every request is answered, in milliseconds. */
const limit = 15_000;

/** Alarms whose time passes in steps of the test. */
class SteppedAlarms {
  #passed = 0;
  readonly elapsed = (): number => this.#passed;
  readonly #open = new Set<{ left: number; wake: () => void }>();

  readonly alarm = (after: number, wake: () => void): (() => void) => {
    const entry = { left: after, wake };
    this.#open.add(entry);
    return () => this.#open.delete(entry);
  };

  get count(): number {
    return this.#open.size;
  }

  /** Lets time pass until something has ended. Returns how much has passed, in milliseconds. */
  async until(ended: Promise<unknown>): Promise<number> {
    let isOver = false;
    void ended.then(() => (isOver = true));
    for (let passed = 0; ; passed += 100) {
      // The requests of the test reach the server in real time.
      for (let turn = 0; turn < 5 && !isOver; turn++) await new Promise((resolve) => setTimeout(resolve, 1));
      if (isOver || passed > 2 * limit) return passed;
      this.#pass(100);
    }
  }

  #pass(time: number): void {
    this.#passed += time;
    for (const entry of this.#open) if ((entry.left -= time) <= 0 && this.#open.delete(entry)) entry.wake();
  }
}

const forever = <T>(): Promise<T> => new Promise(() => undefined);

/** Returns a server of which a part never answers after `hangUp`. */
async function hangingServer(hang: (store: Store) => Partial<Store>, fastPath: boolean) {
  let isHanging = false;
  const alarms = new SteppedAlarms();
  const server = await createTestServer({
    alarm: alarms.alarm,
    elapsed: alarms.elapsed,
    fastPath,
    wrap: (store) =>
      new Proxy(store, {
        get: (target, name, receiver) =>
          (isHanging && Reflect.get(hang(target), name)) || Reflect.get(target, name, receiver),
      }),
  });
  return { ...server, alarms, port: await portOf(server.api), hangUp: () => (isHanging = true) };
}

const hungLookUps = ({ read }: Store): Partial<Store> => ({ read: { ...read, accountByToken: forever } });
const hungBatches = (): Partial<Store> => ({ execute: forever });

const publishLine = "POST /v2/publish/https://e.example/ HTTP/1.1";
const paths = [
  { path: "the fast path", fastPath: true },
  { path: "the framework", fastPath: false },
];

test.each(paths)("a publish on $path that is not stored in time is answered", async ({ fastPath }) => {
  const { alarms, ask, port, hangUp, lines } = await hangingServer(hungBatches, fastPath);
  await ask("GET", "/v2/queues");
  hangUp();
  const sent = send(port, request(publishLine, [`Authorization: Bearer ${token}`], "x"));
  expect(await alarms.until(sent)).toBeLessThanOrEqual(limit);
  const { status, body, head } = parseReply(await sent);
  expect([status, /^retry-after: 1\r?$/im.test(head)]).toEqual([503, true]);
  expect(JSON.parse(body)).toEqual({
    error:
      "storage unavailable: the request may or may not have been stored; check before you retry; " +
      "a repeat with the same deduplication id creates no second message",
    code: "outcome-unknown",
  });
  expect(lines.at(-1)?.fault).toBe("the request was not answered within 14 s");
});

test.each(paths)("the look-up of a token counts in the time of a request on $path", async ({ fastPath }) => {
  const { alarms, port, hangUp } = await hangingServer(hungLookUps, fastPath);
  hangUp();
  const sent = send(port, request(publishLine, [`Authorization: Bearer ${token}`], "x"));
  expect(await alarms.until(sent)).toBeLessThanOrEqual(limit);
  expect(parseReply(await sent)).toMatchObject({ status: 503 });
  expect(JSON.parse(parseReply(await sent).body)).toEqual({
    error: "storage unavailable: nothing was stored; retry later",
    code: "unavailable",
  });
});

test("a read that hangs is answered in time, and one that ends in time leaves no timer", async () => {
  const reads = ({ read }: Store): Partial<Store> => ({ read: { ...read, findResource: forever } });
  const { alarms, ask, hangUp } = await hangingServer(reads, false);
  await ask("GET", "/v2/queues");
  expect(alarms.count).toBe(0);
  hangUp();
  const asked = ask("GET", "/v2/queues/q");
  expect(await alarms.until(asked)).toBeLessThanOrEqual(limit);
  expect(await asked).toMatchObject({
    status: 503,
    body: { error: "storage unavailable: retry later", code: "unavailable" },
  });
});

test("a request on an account path that is not stored in time keeps the form of its errors", async () => {
  const { alarms, ask, hangUp } = await hangingServer(hungBatches, false);
  await ask("GET", "/v2/queues");
  hangUp();
  const asked = ask("POST", "/v2/svc/rotate-token/acc_1", {
    token: null,
    headers: { authorization: `Basic ${Buffer.from("acc_1:pass").toString("base64")}` },
  });
  await alarms.until(asked);
  expect(await asked).toMatchObject({
    status: 503,
    body: {
      code: "service-unavailable",
      message: expect.stringContaining("may or may not have been stored"),
    },
  });
});

test("work does not begin without time, and a late stream is closed", async () => {
  const alarms = new SteppedAlarms();
  let hasBegun = false;
  const begin = async (): Promise<void> => void (hasBegun = true);
  await expect(
    answerInTime(begin, { wakeAfter: alarms.alarm, time: 0, outcome: "unknown" }),
  ).rejects.toMatchObject({ code: "unavailable" });
  expect(hasBegun).toBe(false);
  const stream = new LineStream(1_000);
  let open: (late: LineStream) => void = () => undefined;
  const opening = answerInTime(() => new Promise<LineStream>((resolve) => (open = resolve)), {
    wakeAfter: alarms.alarm,
    outcome: "read",
    dropLate: (late) => void late.destroy(),
  }).catch((error: unknown) => error);
  await alarms.until(opening);
  expect(await opening).toMatchObject({ code: "unavailable" });
  open(stream);
  await expect.poll(() => stream.destroyed).toBe(true);
});
