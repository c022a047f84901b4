import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { Gate } from "../../../../src/engine/core/admission/gate.ts";
import {
  accountGate,
  compareForLocking,
  formatGate,
  gateKinds,
  isBefore,
  listGateBounds,
  parseGate,
} from "../../../../src/engine/core/admission/gate.ts";

const name = fc.oneof(
  fc.string({ minLength: 1, unit: "grapheme" }),
  fc.constantFrom("a:b", "queue:x", ":", "https://e.example/a b"),
);
const gate: fc.Arbitrary<Gate> = fc.oneof(
  fc.record({
    kind: fc.constantFrom("queue" as const, "key" as const, "endpoint" as const, "capacity" as const),
    name,
  }),
  fc.constant(accountGate),
);

describe("ids of gates", () => {
  test("are parsed as they were formatted, regardless of the characters in a name", () => {
    const property = fc.property(gate, (one) => {
      expect(parseGate(formatGate(one))).toEqual(one);
    });
    fc.assert(property);
  });

  test.each(["", "queue", "under-way:", "Queue:a", ":a"])("cannot be %j", (id) => {
    expect(() => parseGate(id)).toThrow(
      `gate ${id}: must begin with one of queue, key, endpoint, account, capacity`,
    );
  });

  test("of one kind are between two bounds, and no other ids are", () => {
    const isWithin = ({ after, before }: { after: string; before: string }, id: string): boolean =>
      id > after && id < before;
    const property = fc.property(gate, fc.constantFrom(...gateKinds), (one, kind) => {
      const isOfKind = one.kind === kind && one.name !== "";
      expect(isWithin(listGateBounds(kind), formatGate(one))).toBe(isOfKind);
    });
    fc.assert(property);
  });
});

test("gates have a fixed order", () => {
  const gates = gateKinds.map((kind) => ({ kind, name: "" as const }));
  for (const [at, one] of gates.entries())
    for (const [other, next] of gates.entries()) expect(isBefore(one, next)).toBe(at < other);
});

test("limiters of accounts are locked after queues and keys, and those of endpoints last", () => {
  const ids = [
    "endpoint:https://a.example/",
    "account:",
    "queue:a",
    "endpoint:https://b.example/",
    "key:z",
    "queue:b",
    "key:a",
  ];
  const sorted = [
    "key:a",
    "key:z",
    "queue:a",
    "queue:b",
    "account:",
    "endpoint:https://a.example/",
    "endpoint:https://b.example/",
  ];
  expect(ids.toSorted(compareForLocking)).toEqual(sorted);
});
