import { expect, test } from "vitest";
import {
  audited,
  noteNamed,
  noteAccount,
  noteAccountChange,
  noteChange,
  noteLimiter,
  noteMany,
} from "../../../../src/engine/core/commands/audit.ts";
import type { Draft } from "../../../../src/engine/core/decision/command.ts";
import { formatGate, keyGate, queueGate } from "../../../../src/engine/core/admission/gate.ts";

test("a note has the key, name or id of its object", () => {
  const note = noteNamed("source.delete");
  expect(note({ id: "src_1" }, {})).toEqual({ what: "source.delete", object: "src_1" });
  expect(note({ name: "n" }, { deleted: 1 })).toEqual({ what: "source.delete", object: "n" });
  expect(note({ key: "k" }, { deleted: true })).toEqual({ what: "source.delete", object: "k" });
});

test("an answer that nothing was found makes no note", () => {
  for (const answer of [null, { deleted: false }, { deleted: 0 }])
    expect(noteNamed("source.delete")({ id: "src_1" }, answer)).toBeNull();
  expect(noteNamed("source.delete")({ id: "src_1" }, "text")).not.toBeNull();
  expect(noteLimiter("pause")({ id: formatGate(queueGate("q")) }, null)).toBeNull();
  expect(noteChange("source.change")({ id: "src_1", change: {} }, null)).toBeNull();
});

test("a note of a change lists its fields, and never a secret", () => {
  expect(noteChange("source.change")({ id: "src_1", change: { secretHash: "x", url: "y" } }, {})).toEqual({
    what: "source.change",
    object: "src_1",
    fields: ["secret", "url"],
  });
});

test("a note of a limiter distinguishes queues from keys", () => {
  expect(noteLimiter("pause")({ id: formatGate(queueGate("q")) }, {})).toEqual({
    what: "queue.pause",
    object: "q",
  });
  expect(noteLimiter("pause")({ id: formatGate(keyGate("k")) }, {})).toEqual({
    what: "flowControl.pause",
    object: "k",
  });
});

test("a note of many objects has their number", () => {
  const note = noteMany(
    "message.cancel",
    (ids: string[]) => ids,
    (count: number) => count,
  );
  expect(note(["a", "b"], 2)).toEqual({ what: "message.cancel", object: "a", count: 2 });
  expect(note([], 1)).toEqual({ what: "message.cancel", object: null, count: 1 });
  expect(note(["a"], 0)).toBeNull();
});

test("a change of an account is noted as disable, enable or change", () => {
  expect(noteAccount("account.create")()).toEqual({ what: "account.create", object: null });
  expect(noteAccountChange({ state: "passive" })).toEqual({ what: "account.disable", object: null });
  expect(noteAccountChange({ state: "active" })).toEqual({ what: "account.enable", object: null });
  expect(noteAccountChange({ state: "active", plan: "free", limits: { queues: 1, delay: null } })).toEqual({
    what: "account.change",
    object: null,
    fields: ["state", "plan", "limits.queues", "limits.delay"],
  });
});

test("an audit entry is written for each change with a caller, and for nothing else", () => {
  const kept: unknown[] = [];
  const decision = audited<{ id: string; deleted: boolean }, { deleted: boolean }>(
    { decide: ({ deleted }) => ({ deleted }) },
    noteNamed("account.delete"),
  );
  const by = { via: "token", ip: null } as never;
  const moment = { now: 7, newId: (kind: string) => `${kind}_1` } as never;
  const run = (input: object, hasChanged = true): void => {
    const draft = {
      hasChanged: () => hasChanged,
      put: (table: string, row: unknown) => kept.push([table, row]),
    } as unknown as Draft;
    decision.decide({ id: "acc_1", deleted: true, ...input }, draft, moment);
  };
  run({});
  run({ by }, false);
  run({ by, deleted: false });
  expect(kept).toEqual([]);
  run({ by });
  run({ by, account: "acc_2" });
  const entry = { id: "aud_1", time: 7, by, what: "account.delete", object: "acc_1" };
  expect(kept).toEqual([
    ["audit", { account: "acc_1", ...entry }],
    ["audit", { account: "acc_2", ...entry }],
  ]);
});
