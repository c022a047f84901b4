import { describe, expect, test } from "vitest";
import { serverEndedDueAt } from "../../../src/engine/core/admission/lease.ts";
import { accountGate, keyGate, queueGate } from "../../../src/engine/core/admission/gate.ts";
import { newLimiter } from "../../../src/engine/core/admission/limiter.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { WaitState } from "../../../src/engine/core/explain/whyWaiting.ts";
import { maxCounted } from "../../../src/engine/core/explain/whyWaiting.ts";
import { listShownReasons } from "../../../src/api/views/waitReasons.ts";
import { noon } from "../../engine/core/commandRunner.ts";
import { shopMessage } from "../../engine/core/explain/shopMessage.ts";

const held: MessageState = {
  ...shopMessage,
  state: "held",
  dueAt: null,
  flowControlKey: "k",
  waitlist: "key:k",
};
const key = {
  ...newLimiter({ account: "acme", gate: keyGate("k") }, noon),
  parallelism: 2,
  running: 2,
  waiting: 5,
};
const standing: WaitState = {
  state: held,
  retries: 3,
  createdAt: noon,
  notBefore: noon,
  lastEntry: null,
  queue: null,
  key,
  waitingAhead: 4,
  timeout: 900_000,
  slotHolders: [],
};
const textsOf = (over: Partial<WaitState>, now = noon): string[] =>
  listShownReasons({ ...standing, ...over }, now).map(({ text }) => text);

test("a message that waits for its account names the usage, the limit and the command to raise it", () => {
  const accountLimiter = {
    ...newLimiter({ account: "acme", gate: accountGate }, noon),
    parallelism: 2,
    running: 2,
    waiting: 5,
  };
  const line = { state: { ...held, waitlist: "account:" }, key: null };
  expect(textsOf({ ...line, accountLimiter })).toEqual([
    'account: 2 of 2 deliveries in flight (raise the limit with "waypost account limits acme ' +
      '--global-parallelism <value>"); 4 ahead of it in the waitlist',
  ]);
  expect(textsOf({ ...line, accountLimiter: { ...accountLimiter, running: 1 } })).toEqual([
    "the account is open; the next node that checks claims it; 4 ahead of it in the waitlist",
  ]);
});

test("a message that was being sent when the server restarted names the restart", () => {
  const cut: MessageState = {
    ...held,
    state: "active",
    waitlist: null,
    leasedBy: "nod_a",
    dueAt: serverEndedDueAt,
  };
  expect(listShownReasons({ ...standing, state: cut, key: null }, noon + 5)).toEqual([
    {
      reason: "lease-over",
      attempt: 0,
      node: "nod_a",
      since: noon,
      until: noon + 5,
      text:
        `the server restarted while node nod_a sent it since ${new Date(noon).toISOString()}; it is ` +
        "sent again",
    },
  ]);
});

test("a message that waits for an account limit to its endpoint names the endpoint and the limit", () => {
  const accountLimiter = {
    ...newLimiter(
      { account: "acme", gate: { kind: "endpoint", name: "https://shop.example:8443/hook" } },
      noon,
    ),
    parallelism: 2,
    running: 2,
    waiting: 5,
  };
  const line = {
    state: { ...held, host: "shop.example:8443", waitlist: "endpoint:https://shop.example:8443/hook" },
    key: null,
  };
  const raise = 'raise the limit with "waypost account limits acme --parallelism <value>"';
  expect(listShownReasons({ ...standing, ...line, accountLimiter }, noon)).toEqual([
    {
      reason: "account-endpoint",
      endpoint: "https://shop.example:8443/hook",
      used: 2,
      limit: 2,
      position: 4,
      text:
        `account: 2 of 2 deliveries in flight to endpoint https://shop.example:8443/hook (${raise}); ` +
        "4 ahead of it in the waitlist",
    },
  ]);
  expect(textsOf({ ...line, accountLimiter: { ...accountLimiter, running: 1 } })).toEqual([
    "the account at endpoint https://shop.example:8443/hook is open; the next node that checks claims " +
      "it; 4 ahead of it in the waitlist",
  ]);
});

test("places of a key or an endpoint that are reserved by waiting messages are not free", () => {
  const onward = {
    ...key,
    running: 1,
    waitingDownstream: 1,
    rate: 3,
    period: 1000,
    windowStart: noon,
    windowUsed: 2,
  };
  expect(listShownReasons({ ...standing, key: onward }, noon)).toMatchObject([
    {
      reason: "key-parallelism",
      used: 2,
      limit: 2,
      text: "key k: 1 of 2 in flight, 1 more waiting for the account; 4 ahead of it in the waitlist",
    },
    {
      reason: "key-rate",
      used: 3,
      limit: 3,
      text: expect.stringMatching(/rate 2 of 3 used until .*, 1 more waiting for the account;/),
    },
  ]);
  expect(textsOf({ key: { ...onward, rate: null, running: 0 } })).toEqual([
    "key k is open; the next node that checks claims it; 4 ahead of it in the waitlist",
  ]);
  const accountLimiter = {
    ...newLimiter({ account: "acme", gate: { kind: "endpoint", name: "https://shop.example/" } }, noon),
    parallelism: 2,
    running: 1,
    waitingDownstream: 1,
    waiting: 5,
  };
  expect(
    listShownReasons(
      {
        ...standing,
        state: { ...held, waitlist: "endpoint:https://shop.example/" },
        key: null,
        accountLimiter,
      },
      noon,
    ),
  ).toMatchObject([
    {
      reason: "account-endpoint",
      used: 2,
      limit: 2,
      text: expect.stringMatching(/^account: 1 of 2 .*, 1 more waiting for the account \(/),
    },
  ]);
});

test.each(["account:", "endpoint:https://shop.example/", "capacity:shop.example"])(
  "a paused key is a further reason for a message in the waitlist %s",
  (waitlist) => {
    const accountLimiter = {
      ...newLimiter({ account: "acme", gate: accountGate }, noon),
      parallelism: 2,
      running: 2,
      waiting: 5,
    };
    const reasons = listShownReasons(
      { ...standing, state: { ...held, waitlist }, key: { ...key, paused: true }, accountLimiter },
      noon,
    );
    expect(reasons.map(({ reason }) => reason)).toEqual([
      expect.stringMatching(/^(account|account-endpoint|host)$/),
      "key-paused",
    ]);
  },
);

describe("the reasons of a message", () => {
  test("counts the messages ahead only up to a limit", () => {
    expect(listShownReasons({ ...standing, waitingAhead: maxCounted }, noon)).toMatchObject([
      { position: 1000 },
    ]);
    expect(listShownReasons({ ...standing, waitingAhead: maxCounted }, noon)[0]).not.toHaveProperty("more");
    expect(listShownReasons({ ...standing, waitingAhead: maxCounted + 1 }, noon)).toMatchObject([
      {
        position: 1000,
        more: true,
        text: "key k: 2 of 2 in flight; more than 1000 ahead of it in the waitlist",
      },
    ]);
  });

  test("names everything that closes a key", () => {
    const closed = { ...key, paused: true, rate: 1, period: 1000, windowStart: noon, windowUsed: 1 };
    expect(textsOf({ key: closed })).toEqual([
      "key k is paused; 4 ahead of it in the waitlist",
      "key k: 2 of 2 in flight; 4 ahead of it in the waitlist",
      "key k: rate 1 of 1 used until 2026-01-01T12:00:01.000Z; 4 ahead of it in the waitlist",
    ]);
    expect(textsOf({ key: closed }, noon + 1000)).toHaveLength(2);
  });

  test("has a description even if rows disappeared between two reads", () => {
    const queued = { ...held, queue: "q", waitlist: "queue:q" };
    const queue = { ...newLimiter({ account: "acme", gate: queueGate("q") }, noon), running: 2, waiting: 1 };
    expect(textsOf({ key: null })).toEqual([
      "key k is open; the next node that checks claims it; 4 ahead of it in the waitlist",
    ]);
    expect(textsOf({ state: queued })).toEqual([
      "queue q is open; the next node that checks claims it; 4 ahead of it in the waitlist",
    ]);
    expect(textsOf({ state: queued, queue, slotHolders: [{ messageId: "msg_1", holders: [] }] })).toEqual([
      "queue q: 2 of 1 slots in use; 4 ahead of it in the waitlist",
    ]);
    expect(textsOf({ state: { ...held, waitlist: null } })).toEqual([
      "? is open; the next node that checks claims it; 4 ahead of it in the waitlist",
    ]);
    expect(textsOf({ state: { ...held, state: "active" } }, noon)).toHaveLength(1);
    expect(textsOf({ state: { ...held, state: "pending" } }, noon)).toHaveLength(1);
  });

  test("names only the paused queue if the message would be sent otherwise", () => {
    const queue = { ...newLimiter({ account: "acme", gate: queueGate("q") }, noon), paused: true };
    const state: MessageState = {
      ...held,
      state: "pending",
      waitlist: null,
      queue: "q",
      slot: held.id,
      dueAt: noon + 9,
      attempts: 1,
    };
    const lastEntry = { time: noon - 9, status: 500, error: null, nextDueAt: noon - 1 };
    expect(textsOf({ state, queue, key: null, lastEntry })).toEqual(["queue q is paused"]);
    expect(textsOf({ state: { ...state, attempts: 0 }, queue, key: null })).toEqual(["queue q is paused"]);
    // The message is not due yet.
    const due = "retry 1 of 3 at 2026-01-01T12:00:00.009Z, after status 500";
    expect(textsOf({ state, queue, key: null, lastEntry: { ...lastEntry, nextDueAt: noon + 9 } })).toEqual([
      due,
      "queue q is paused",
    ]);
    expect(
      textsOf({ state: { ...state, slot: null, attempts: 0 }, queue, key: null, notBefore: noon + 9 }),
    ).toEqual(["due at 2026-01-01T12:00:00.009Z", "queue q is paused"]);
  });

  test("counts retries without lost attempts", () => {
    const state: MessageState = {
      ...held,
      state: "pending",
      waitlist: null,
      dueAt: noon + 5,
      attempts: 3,
      lostAttempts: 1,
    };
    const lastEntry = { time: noon, status: null, error: null, nextDueAt: noon + 5 };
    expect(textsOf({ state, lastEntry })).toEqual(["retry 2 of 3 at 2026-01-01T12:00:00.005Z"]);
    expect(textsOf({ state: { ...state, attempts: 1 } })).toEqual(["due at 2026-01-01T12:00:00.005Z"]);
    expect(listShownReasons({ ...standing, state: { ...state, attempts: 1 } }, noon)).toEqual([
      { reason: "not-due", text: "due at 2026-01-01T12:00:00.005Z", until: noon + 5 },
    ]);
    expect(
      listShownReasons({ ...standing, state, lastEntry: { ...lastEntry, error: "timeout" } }, noon),
    ).toEqual([
      {
        reason: "retry",
        text: "retry 2 of 3 at 2026-01-01T12:00:00.005Z, after: timeout",
        until: noon + 5,
        used: 2,
        limit: 3,
        error: "timeout",
      },
    ]);
    expect(
      listShownReasons({ ...standing, state, lastEntry: { ...lastEntry, status: 500 } }, noon),
    ).toMatchObject([{ reason: "retry", status: 500 }]);
    expect(listShownReasons({ ...standing, state }, noon + 5)).toEqual([
      {
        reason: "due",
        text: "due since 2026-01-01T12:00:00.005Z; the next node that checks claims it",
        since: noon + 5,
      },
    ]);
  });

  test("names the node that sends a message, with its start and its timeout", () => {
    const state: MessageState = {
      ...held,
      state: "active",
      waitlist: null,
      leasedBy: "nod_a",
      dueAt: noon + 30_000,
    };
    const facts = { attempt: 0, node: "nod_a", since: noon };
    const lastEntry = { time: noon - 5, status: null, error: null, nextDueAt: null };
    const since = "2026-01-01T12:00:00.000Z";
    const until = "2026-01-01T12:00:30.000Z";
    expect(listShownReasons({ ...standing, state, lastEntry }, noon)).toEqual([
      {
        reason: "sending",
        text: `being sent by node nod_a since ${since}; it times out at 2026-01-01T12:15:00.000Z`,
        ...facts,
        until: noon + 900_000,
      },
    ]);
    const renewed = { ...state, startedAt: noon - 10_000 };
    expect(listShownReasons({ ...standing, state: renewed, lastEntry }, noon)).toMatchObject([
      { since: noon - 10_000, until: noon + 890_000 },
    ]);
    expect(listShownReasons({ ...standing, state: { ...state, state: "ending" }, lastEntry }, noon)).toEqual([
      {
        reason: "sending",
        text: "an operator has ended this attempt; node nod_a closes its connection",
        ...facts,
        until: noon + 900_000,
        ending: true,
      },
    ]);
    const over =
      `node nod_a has been sending it since ${since} and has not reported; its lease expired ` +
      `at ${until}, so it is sent again`;
    expect(listShownReasons({ ...standing, state, lastEntry }, noon + 30_000)).toEqual([
      { reason: "lease-over", text: over, ...facts, until: noon + 30_000 },
    ]);
    expect(textsOf({ state: { ...state, leasedBy: null } })[0]).toContain(
      "node ? since 2026-01-01T12:00:00.000Z;",
    );
  });
});
