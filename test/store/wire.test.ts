import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { Delivery, Envelope, Letter } from "../../src/core/message.ts";
import type { BatchResult, Call } from "../../src/store/store.ts";
import { packBatch, packResult, unpackBatch, unpackResult } from "../../src/store/wire.ts";

const hands = { free: 3, bytes: { free: 1, perBatch: 1, busy: {} }, perHost: 2, behind: false, busy: new Map([["a host", 1]]) };

const letter = (body: Uint8Array, more: Partial<Letter> = {}): Letter => ({
  ...{ brand: "svc", url: "https://a.example/x", method: "POST", headers: [["Content-Type", "text/plain"]], body, labels: ["l"] },
  ...{
    retries: null,
    retryDelay: null,
    timeout: null,
    flowControl: null,
    callback: null,
    failureCallback: null,
    delay: null,
    notBefore: null,
  },
  ...{ deduplication: null, redaction: null, callerIp: null, tells: null },
  ...{ group: null, endpoint: null, queue: null, scheduleId: null, ...more },
});

const lettersOf = ([first]: readonly Call[]): Letter[] => {
  if (first?.name !== "publish") throw new Error("the first call is no publish");
  return (first.input as { letters: Letter[] }).letters;
};

/** A view into a larger buffer, as bodies of requests are. */
const view = (bytes: readonly number[]): Uint8Array => new Uint8Array([9, 9, ...bytes, 9]).subarray(2, 2 + bytes.length);

test("calls come across as they were, whatever the bodies are", () => {
  fc.assert(
    fc.property(fc.array(fc.array(fc.uint8Array({ maxLength: 100_000 }), { maxLength: 3 }), { maxLength: 5 }), (bodies) => {
      const calls: Call[] = bodies.flatMap((some): Call[] => [
        { name: "publish", input: { account: "a", letters: some.map((body) => letter(view([...body]))) } },
        { name: "settle", input: { messageId: "msg_1", body: view([...(some[0] ?? [])]), error: null } },
        { name: "cancel", input: { account: "a", messageIds: ["msg_1"] } },
      ]);
      expect(unpackBatch(structuredClone(packBatch(calls, hands)))).toEqual({ calls, hands });
    }),
  );
});

const envelope = (made: Letter, id: string): Envelope => {
  const { delay: _, ...kept } = made;
  return { ...kept, account: "a", id, createdAt: 5, notBefore: 6, retries: 3, timeout: 1000, startedAtOnce: true };
};

test("deliveries come back whole, those of a letter that just came in and those that did not", () => {
  const same = new Uint8Array(0);
  const calls: Call[] = [
    { name: "publish", input: { account: "a", letters: [letter(same), letter(view([1, 2])), letter(view([3]), { retries: 7 })] } },
    { name: "claim", input: { limit: 5 } },
  ];
  const there = unpackBatch(structuredClone(packBatch(calls, hands)));
  const [, second, third] = lettersOf(there.calls);
  if (!second || !third) throw new Error("letters were lost");
  const deliveries: Delivery[] = [
    { message: envelope(third, "msg_3"), attempt: 0, signingKey: "sig" },
    { message: envelope(letter(view([7, 8, 9]), { url: "https://claimed.example" }), "msg_0"), attempt: 2, signingKey: "sig" },
    { message: envelope(second, "msg_2"), attempt: 0, signingKey: "sig" },
  ];
  const result: BatchResult = {
    replies: [{ answer: [] }, { failed: "no" }],
    deliveries,
    calledOff: [{ account: "a", messageId: "msg_1", attempt: 2 }],
    dueAt: 7,
    faults: [],
  };
  const parcel = structuredClone(packResult(result, there.calls));
  expect(parcel.text).not.toContain("https://a.example/x");
  expect(unpackResult(parcel, calls)).toEqual(result);
});

test("a small body does not keep the buffer of a large batch in memory", () => {
  const calls: Call[] = [{ name: "publish", input: { account: "a", letters: [letter(new Uint8Array(1_000_000)), letter(view([1]))] } }];
  const { calls: there } = unpackBatch(packBatch(calls, hands));
  const [, small] = lettersOf(there);
  expect(small?.body.buffer.byteLength).toBe(1);
});
