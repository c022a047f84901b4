import { hash } from "node:crypto";
import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import type { CarriedHistory } from "../../../../src/engine/core/model/attempt.ts";
import { formatHistory, type CallType, type SentStep } from "../../../../src/engine/core/model/run.ts";
import { SentHistory } from "../../../../src/engine/store/histories/sentHistory.ts";

const callTypes: readonly CallType[] = ["step", "toCallback", "fromCallback"];

const steps = fc
  .array(
    fc.record({
      body: fc.uint8Array({ maxLength: 3_000 }),
      callType: fc.constantFrom(...callTypes),
      messageId: fc.string(),
    }),
    { minLength: 1, maxLength: 30 },
  )
  .map((entries) =>
    entries.map(({ messageId, ...entry }, position): SentStep => {
      const id = `msg_${Buffer.from(messageId).toString("hex")}`;
      return { ...entry, messageId: id, position };
    }),
  );

/** Actions: add this many steps, or take the history up to a position. */
const actions = fc.array(
  fc.oneof(fc.record({ add: fc.integer({ min: 1, max: 5 }) }), fc.record({ take: fc.nat(30) })),
  { maxLength: 60 },
);

const expectSame = (taken: CarriedHistory, expected: Uint8Array): void => {
  expect(Buffer.concat(taken.parts).toString()).toBe(Buffer.from(expected).toString());
  expect(taken.byteLength).toBe(expected.byteLength);
};

test("every part that is taken equals the history as it is encoded at once, also after it has grown", () => {
  fc.assert(
    fc.property(steps, actions, (entries, doing) => {
      const history = new SentHistory();
      const taken: { carried: CarriedHistory; expected: Uint8Array }[] = [];
      for (const action of doing) {
        if ("add" in action) history.append(entries.slice(history.count, history.count + action.add));
        else {
          const carried = history.upTo(action.take);
          expect(carried === undefined).toBe(action.take >= history.count);
          const expected = formatHistory(entries.slice(0, action.take + 1));
          if (carried) taken.push({ carried, expected });
        }
      }
      for (const { carried, expected } of taken) {
        expectSame(carried, expected);
        expect(carried.hash()).toBe(hash("sha256", expected, "base64url"));
      }
      for (const { carried, expected } of taken) expectSame(carried, expected);
    }),
  );
});

test("the hash is right in any order, and when it is asked for again", () => {
  fc.assert(
    fc.property(steps, fc.array(fc.nat(29), { maxLength: 20 }), (entries, positions) => {
      const history = new SentHistory();
      history.append(entries);
      for (const position of positions) {
        const expected = formatHistory(entries.slice(0, position + 1));
        expect(history.upTo(position)?.hash() ?? null).toBe(
          position < entries.length ? hash("sha256", expected, "base64url") : null,
        );
      }
    }),
  );
});

test("steps that are known are skipped, and nothing is added after a gap", () => {
  const step = (position: number): SentStep => ({
    position,
    messageId: `msg_${position}`,
    callType: "step",
    body: new Uint8Array(position),
  });
  const history = new SentHistory();
  history.append([step(0), step(1)]);
  history.append([step(0), step(1), step(2), step(4), step(3)]);
  expect(history.count).toBe(3);
  history.append([step(3), step(4)]);
  const whole = [0, 1, 2, 3, 4].map(step);
  expect(Buffer.concat(history.upTo(4)?.parts ?? [])).toEqual(Buffer.from(formatHistory(whole)));
});

test("its memory is at most twice its bytes, and a part in use does not keep it from growing", () => {
  const history = new SentHistory();
  const body = new Uint8Array(700);
  for (let position = 0; position < 500; position++) {
    history.append([{ position, messageId: "msg_1", callType: "step", body }]);
    expect(history.memory).toBeLessThan(2 * history.byteLength + 8 * history.count + 2_000);
  }
});

test("its memory counts all bytes that it keeps from being freed", () => {
  const history = new SentHistory();
  history.append([{ position: 0, messageId: "msg_1", callType: "step", body: new Uint8Array(10) }]);
  expect(history.upTo(0)?.parts[0]?.buffer.byteLength).toBeLessThanOrEqual(history.memory);
});
