import { expect, test } from "vitest";
import { LineStream } from "../../../src/api/http/lineStream.ts";
import { answerInTime } from "../../../src/api/http/answerTime.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { token } from "../testServer.ts";
import { parseReply, request, send } from "../wire.ts";
import { hangingServer, limit, SteppedAlarms } from "./hangingServer.ts";
import { codeFields } from "../errorFields.ts";

const forever = <T>(): Promise<T> => new Promise(() => undefined);

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
    ...codeFields("outcome-unknown"),
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
    ...codeFields("unavailable"),
  });
});

test.each([
  { storage: "hangs", inDoubt: true, code: "unavailable", error: "storage unavailable: retry later" },
  {
    storage: "is slow",
    inDoubt: false,
    code: "too-slow",
    error:
      "request: took longer than 14 s, and the storage shows no failure; " +
      "ask for fewer entries, or use a narrower filter",
  },
])("a read of a storage that $storage is answered in time", async ({ inDoubt, code, error }) => {
  const reads = ({ read }: Store): Partial<Store> => ({
    read: { ...read, findResource: forever },
    isInDoubt: () => inDoubt,
  });
  const { alarms, ask, hangUp, lines } = await hangingServer(reads, false);
  await ask("GET", "/v2/queues");
  expect(alarms.count, "timers of a read that ended in time").toBe(0);
  hangUp();
  const asked = ask("GET", "/v2/queues/q");
  expect(await alarms.until(asked)).toBeLessThanOrEqual(limit);
  expect(await asked).toMatchObject({ status: 503, body: { error, code } });
  expect(lines.at(-1)?.fault).toBe("the request was not answered within 14 s");
});

test("reads that were answered while they waited for a turn are not made later", async () => {
  const ends: (() => void)[] = [];
  const slowReads = ({ read }: Store): Partial<Store> => ({
    read: {
      ...read,
      findResource: () => new Promise((_resolve, reject) => ends.push(() => reject(new Error("late")))),
    },
  });
  const { alarms, port, hangUp, ask } = await hangingServer(slowReads, true);
  await ask("GET", "/v2/queues");
  hangUp();
  const sent = Array.from({ length: 6 }, () =>
    send(port, request("GET /v2/queues/q HTTP/1.1", [`Authorization: Bearer ${token}`])),
  );
  await alarms.until(Promise.all(sent));
  expect(ends).toHaveLength(4);
  for (const end of ends) end();
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(ends).toHaveLength(4);
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
      errorCode: "outcome-unknown",
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
