import { expect, test } from "vitest";
import type { OutboxState } from "../../../src/operations/outbox/outbox.ts";
import { createOutboxReader, sumOutboxes } from "../../../src/operations/outbox/figures.ts";

const now = 1_000_000;

/** Returns the state of an outbox whose relay looked two seconds ago. */
const makeState = (more: Partial<OutboxState>): OutboxState => ({
  ...{ account: "acc_1", id: "shop", dueAt: 1, marks: [], taken: 0, takenAt: null },
  ...{ waiting: 0, rejected: 0, oldestAt: null, rejectedAt: null, reason: null, error: null, errorAt: null },
  lease: { node: "nod_1", number: 1, until: now + 13_000 },
  ...more,
});

test("the figures are the sums of all outboxes, and the longest lag", () => {
  const states = [
    makeState({ waiting: 3, rejected: 2, oldestAt: now - 2_500 }),
    makeState({ waiting: 5, rejected: 1, oldestAt: now - 9_000, error: "is away", lease: null }),
    makeState({}),
  ];
  expect(sumOutboxes(states, now)).toEqual({ outboxes: 3, failing: 1, waiting: 8, rejected: 3, lag: 9_000 });
  expect(sumOutboxes([], now)).toEqual({ outboxes: 0, failing: 0, waiting: 0, rejected: 0, lag: 0 });
});

test.each<[string, Partial<OutboxState>, number]>([
  ["had half a second ago, when a relay that works looked", { oldestAt: now - 2_500 }, 500],
  ["is younger than the last look", { oldestAt: now - 1 }, 0],
  ["waits, because there is an error", { oldestAt: now - 2_500, error: "is away" }, 2_500],
  ["waits, because no node takes rows", { oldestAt: now - 2_500, lease: null }, 2_500],
  [
    "waits, because the node of the lease has ended",
    { oldestAt: now - 90_000, lease: { node: "nod_1", number: 1, until: now - 1 } },
    90_000,
  ],
])("the lag of a row that %s", (_, state, lag) => {
  expect(sumOutboxes([makeState(state)], now).lag).toBe(lag);
});

/** A store that counts reads. */
function createFakeStore() {
  const listeners: (() => void)[] = [];
  const fake = { states: [] as OutboxState[], reads: 0, fails: false };
  const allOutboxes = async (): Promise<OutboxState[]> => {
    fake.reads++;
    if (fake.fails) throw new Error("unavailable");
    return fake.states;
  };
  const onAccounts = (listener: () => void) => {
    listeners.push(listener);
    return () => undefined;
  };
  const change = (): void => listeners.forEach((listener) => listener());
  return Object.assign(fake, { store: { read: { allOutboxes }, onAccounts }, change });
}

test("without outboxes, the store is read only after an account has changed", async () => {
  const fake = createFakeStore();
  const read = createOutboxReader(fake.store, { isShared: false });
  for (const at of [now, now + 1, now * 1_000]) expect((await read(at)).outboxes).toBe(0);
  expect(fake.reads).toBe(1);
  fake.states = [makeState({ waiting: 1 })];
  fake.change();
  expect(await read(now)).toMatchObject({ outboxes: 1, waiting: 1 });
  fake.states = [makeState({ waiting: 2 })];
  expect(await read(now)).toMatchObject({ outboxes: 1, waiting: 2 });
  fake.states = [];
  for (let times = 0; times < 3; times++) expect((await read(now)).outboxes).toBe(0);
  expect(fake.reads).toBe(4);
});

test("a failed read is repeated, and another node may have added an outbox without a notice", async () => {
  const fake = createFakeStore();
  const read = createOutboxReader(fake.store, { isShared: true });
  fake.fails = true;
  await expect(read(now)).rejects.toThrow("unavailable");
  fake.fails = false;
  await read(now);
  fake.states = [makeState({})];
  expect((await read(now + 59_999)).outboxes).toBe(0);
  expect((await read(now + 60_000)).outboxes).toBe(1);
  expect(fake.reads).toBe(3);
});
