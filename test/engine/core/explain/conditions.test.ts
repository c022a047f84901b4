import { describe, expect, test } from "vitest";
import type { Condition } from "../../../../src/engine/core/explain/condition.ts";
import type { ConditionFacts } from "../../../../src/engine/core/explain/conditions.ts";
import type { GateFact } from "../../../../src/engine/core/explain/gateConditions.ts";
import { shortenConditions } from "../../../../src/engine/core/explain/condition.ts";
import { findConditions } from "../../../../src/engine/core/explain/conditions.ts";
import { findSlowRuns } from "../../../../src/engine/core/explain/slowRuns.ts";
import type { LogRow } from "../../../../src/engine/core/model/logRow.ts";
import { hour, minute, second } from "../../../../src/engine/core/values/time.ts";

const now = 1_800_000_000_000;

const quiet: ConditionFacts = {
  server: {
    ...{
      refuses: null,
      notReady: null,
      isHeld: false,
      lostBatches: 0,
      lostNodes: [],
      copy: null,
      disk: null,
    },
    isOperators: true,
  },
  refuses: null,
  storage: { used: 0, max: 1_000 },
  log: [],
  failing: [],
  inFlight: [],
  refused: [],
  gates: [],
  pauses: [],
  schedules: [],
  slowRuns: [],
};

const find = (facts: Partial<ConditionFacts>): Condition[] => findConditions({ ...quiet, ...facts }, now);
const list = (facts: Partial<ConditionFacts>): string[] =>
  find(facts).map(({ level, kind, subject }) => `${level} ${kind} ${subject}`);

type Attempt = {
  host?: string;
  ago?: number;
  status?: number;
  duration?: number;
  tags?: readonly string[];
  states?: LogRow["states"];
};
const makeAttempt = ({
  host = "shop.example",
  ago = 0,
  status = 200,
  duration = 5,
  tags = [],
  states = status === 200 ? ["DELIVERED"] : ["ERROR"],
}: Attempt): ConditionFacts["log"][number] => ({
  time: now - ago,
  status,
  error: null,
  attempt: { ...{ host, node: "nod", startedAt: now - ago, connect: null, firstByte: null }, duration },
  tags,
  states,
});

const limiter = {
  ...{ paused: false, rate: null, period: second, windowStart: 0, windowUsed: 0 },
};
const makeGate = (kind: "queue" | "key", more: Partial<GateFact> = {}): GateFact => ({
  gate: { kind, name: "mail" },
  limiter,
  held: { count: 3, more: false },
  dueAt: now - 10 * minute,
  passedAt: null,
  flow: null,
  ...more,
});

describe("a quiet account", () => {
  test("has no conditions", () => expect(list({})).toEqual([]));

  test("has none because of single failures, short waits and hosts that respond", () => {
    expect(
      list({
        log: [makeAttempt({ status: 500 }), makeAttempt({ ago: second, status: 500 })],
        gates: [makeGate("queue", { dueAt: now - 30 * second })],
        inFlight: [{ host: "shop.example", count: 40, since: now - 10 * second }],
      }),
    ).toEqual([]);
  });
});

describe("the server", () => {
  const server = { ...quiet.server, isOperators: false };

  test("refuses: every account sees it, before anything else", () => {
    const refusing = { ...server, refuses: "its disk is almost full", isHeld: true };
    expect(list({ server: refusing, storage: { used: 1_000, max: 1_000 } })).toEqual([
      "problem server.refusing server",
      "problem deliveries.held server",
      "problem storage.full storage",
    ]);
    expect(find({ server: refusing })[0]?.text).toBe(
      "The server refuses new messages: its disk is almost full",
    );
  });

  test("is not ready: only the operator sees why", () => {
    const notReady = "the file /data/waypost.db is damaged";
    expect(find({ server: { ...server, notReady } })).toMatchObject([
      { kind: "server.notReady", level: "problem", text: "The server is not ready" },
    ]);
    expect(find({ server: { ...server, notReady, isOperators: true } })[0]?.text).toContain(notReady);
  });

  test("has lost something, or has little room: only the operator sees it", () => {
    const bad = {
      ...server,
      ...{ lostBatches: 2, lostNodes: ["nod_2"], copy: { lag: 2 * minute, isComplete: true } },
      disk: { free: 5, total: 100 },
    };
    expect(list({ server: bad })).toEqual([]);
    expect(list({ server: { ...bad, isOperators: true } })).toEqual([
      "problem changes.lost database",
      "warning disk.low disk",
      "warning node.lost nod_2",
      "warning copy.behind copy",
    ]);
    const well = { ...bad, ...{ lostBatches: 0, lostNodes: [] }, isOperators: true };
    const copy = { lag: second, isComplete: true };
    expect(list({ server: { ...well, copy, disk: { free: 11, total: 100 } } })).toEqual([]);
    expect(list({ server: { ...well, copy: { ...copy, isComplete: false }, disk: null } })).toEqual([
      "warning copy.behind copy",
    ]);
  });
});

describe("a host", () => {
  test("fails after three failures in a row, since the first of them", () => {
    const log = [3, 2, 1].map((ago) => makeAttempt({ ago: ago * second, status: 503 }));
    expect(find({ log })).toEqual([
      {
        kind: "host.failing",
        level: "problem",
        subject: "shop.example",
        text: "shop.example has accepted nothing for 3 s: status 503",
        since: now - 3 * second,
        oldestDueAt: null,
        count: null,
        by: null,
      },
    ]);
    expect(list({ log: [...log, makeAttempt({})] })).toEqual([]);
    expect(list({ log: [3, 2, 1].map((ago) => makeAttempt({ ago: 2 * hour + ago, status: 503 })) })).toEqual(
      [],
    );
  });

  test("fails by what this node has seen, although the log of a busy account has forgotten it", () => {
    const failing = [{ host: "shop.example", failures: 10, since: now - 5 * minute, last: now - second }];
    expect(list({ failing })).toEqual(["problem host.failing shop.example"]);
    expect(list({ failing, log: [makeAttempt({})] })).toEqual([]);
  });

  test("hangs if it answers nothing for longer than it usually takes", () => {
    const inFlight = [{ host: "shop.example", count: 45, since: now - 30 * second }];
    expect(find({ inFlight })).toMatchObject([
      {
        kind: "host.hanging",
        level: "warning",
        text: "shop.example has answered none of 45 deliveries in flight for 30 s",
        count: 45,
        since: now - 30 * second,
      },
    ]);
    const before = makeAttempt({ ago: minute, duration: 100 });
    expect(list({ inFlight, log: [before] })).toEqual(["problem host.hanging shop.example"]);
    // A timeout is not an answer.
    expect(list({ inFlight, log: [before, makeAttempt({ status: 504 })] })).toHaveLength(1);
    expect(list({ inFlight, log: [makeAttempt({ ago: second })] })).toEqual([]);
    // A single long call is nothing unusual.
    const one = { host: "shop.example", count: 1, since: now - 4 * minute };
    expect(list({ inFlight: [one] })).toEqual([]);
    expect(list({ inFlight: [{ ...one, since: now - 5 * minute }] })).toEqual([
      "warning host.hanging shop.example",
    ]);
    expect(list({ inFlight, log: [makeAttempt({ ago: minute, duration: 9 * second })] })).toEqual([]);
  });
});

describe("a queue or a key", () => {
  const paused = { ...limiter, paused: true };

  test("is paused, with its author and its time, and causes a note if no message waits", () => {
    const by = { kind: "token", token: "tok_1", address: "192.0.2.1" } as const;
    const pauses = [
      { gate: { kind: "queue", name: "mail" }, time: now - 3 * hour, by },
      { gate: { kind: "queue", name: "mail" }, time: now - 9 * hour, by: { ...by, token: "tok_2" } },
      { gate: { kind: "key", name: "mail" }, time: now - 8 * hour, by: { ...by, token: "tok_3" } },
    ] as const;
    expect(find({ gates: [makeGate("queue", { limiter: paused })], pauses })).toEqual([
      {
        kind: "queue.paused",
        level: "warning",
        subject: "mail",
        text: "Queue mail is paused: 3 messages wait",
        since: now - 3 * hour,
        oldestDueAt: now - 10 * minute,
        count: 3,
        by,
      },
    ]);
    const empty = makeGate("key", { limiter: paused, held: { count: 0, more: false }, dueAt: null });
    expect(find({ gates: [empty] })).toMatchObject([
      { kind: "key.paused", level: "note", text: "Key mail is paused", since: null, by: null },
    ]);
  });

  test("is blocked if nothing passes it", () => {
    expect(find({ gates: [makeGate("queue")] })).toMatchObject([
      { kind: "queue.blocked", level: "warning", text: "Queue mail: 3 messages wait, the oldest for 10 min" },
    ]);
    expect(list({ gates: [makeGate("queue", { passedAt: now - 6 * minute })] })).toEqual([
      "warning queue.blocked mail",
    ]);
  });

  test("is limited, which is a note, if messages pass it", () => {
    expect(list({ gates: [makeGate("queue", { passedAt: now - minute })] })).toEqual([
      "note queue.limited mail",
    ]);
  });

  test("drowns if more messages arrive than leave in each minute, and no single burst makes it drown", () => {
    const flow = [
      { published: 20, ended: 2 },
      { published: 9, ended: 2 },
      { published: 3, ended: 2 },
    ];
    const gate = makeGate("key", { passedAt: now - minute, flow });
    expect(find({ gates: [gate] })).toMatchObject([
      {
        kind: "key.drowning",
        level: "warning",
        count: 3,
        text:
          "Key mail gets more messages than its limits let through: 32 published and 6 sent in 3 minutes; " +
          "3 messages wait, the oldest for 10 min",
      },
    ]);
    for (const known of [
      { flow: [...flow.slice(1), { published: 2, ended: 2 }] },
      { dueAt: now - 4 * minute },
      { flow: null },
    ])
      expect(list({ gates: [{ ...gate, ...known }] })).toEqual(["note key.limited mail"]);
    // A key that lets nothing pass is blocked, however many arrive.
    expect(list({ gates: [{ ...gate, passedAt: null }] })).toEqual(["warning key.blocked mail"]);
  });

  test("with a rate says when its messages will have been sent", () => {
    const rated = { ...limiter, rate: 2, period: minute, windowStart: now - 30 * second, windowUsed: 2 };
    const gate = makeGate("key", { limiter: rated, held: { count: 118, more: false } });
    expect(find({ gates: [gate] })).toMatchObject([
      {
        kind: "key.limited",
        level: "note",
        text:
          "Key mail sends as fast as its limits allow: 118 messages wait, the oldest for 10 min. The last " +
          "one is sent in about 59 min",
      },
    ]);
    for (const stuck of [
      { ...rated, windowStart: now - hour },
      { ...rated, windowUsed: 1 },
    ])
      expect(list({ gates: [{ ...gate, limiter: stuck }] })).toEqual(["warning key.blocked mail"]);
  });
});

test("limits of the account and of the server are named with what they hold", () => {
  const held = {
    limiter: null,
    held: { count: 1, more: false },
    dueAt: now - 2 * minute,
    passedAt: null,
    flow: null,
  };
  expect(
    find({
      gates: [
        { gate: { kind: "account", name: "" }, ...held },
        { gate: { kind: "capacity", name: "shop.example" }, ...held },
      ],
    }).map(({ kind, subject, text }) => [kind, subject, text]),
  ).toEqual([
    ["limit.blocked", "account", "The account's limit: 1 message waits, the oldest for 2 min"],
    [
      "limit.blocked",
      "shop.example",
      "The server's capacity for the host shop.example: 1 message waits, the oldest for 2 min",
    ],
  ]);
});

describe("a schedule", () => {
  const daily = { id: "daily", dueAt: now + hour, paused: false, lastAt: now - minute };

  test("is late, was refused, fails, or is paused", () => {
    const failed = makeAttempt({ ago: second, status: 404, tags: ["schedule:daily"], states: ["FAILED"] });
    const retried = makeAttempt({ status: 404, tags: ["schedule:daily"], states: ["ERROR", "RETRY"] });
    expect(list({ schedules: [daily], log: [retried] })).toEqual([]);
    expect(list({ schedules: [daily], log: [makeAttempt({ tags: ["schedule:daily"] })] })).toEqual([]);
    expect(list({ schedules: [{ ...daily, dueAt: now - 2 * minute, passedOver: "full" }] })).toEqual([
      ...["problem schedule.late daily", "problem schedule.refused daily"],
    ]);
    expect(find({ schedules: [{ ...daily, passedOver: "the URL group is gone" }] })).toMatchObject([
      { kind: "schedule.refused", text: "Schedule daily published nothing: the URL group is gone" },
    ]);
    expect(find({ schedules: [daily], log: [failed] })).toMatchObject([
      { kind: "schedule.failing", text: "The last message of schedule daily failed: status 404" },
    ]);
    expect(list({ schedules: [daily], log: [failed, makeAttempt({ tags: ["schedule:daily"] })] })).toEqual(
      [],
    );
    expect(list({ schedules: [{ ...daily, paused: true, dueAt: null }] })).toEqual([
      "note schedule.paused daily",
    ]);
  });
});

test("an account whose publishes are refused says why", () =>
  expect(find({ refuses: "the account is disabled" })).toMatchObject([
    {
      kind: "account.refusing",
      level: "problem",
      text: "New messages of the account are refused: the account is disabled",
    },
  ]));

test("at most ten conditions of a kind are listed, and one says how many others there are", () => {
  const gates = Array.from({ length: 12 }, (_, at) =>
    makeGate("queue", { gate: { kind: "queue", name: `q${at + 10}` } }),
  );
  const found = find({ gates, storage: { used: 950, max: 1_000 } });
  const shown = shortenConditions(found);
  expect(shown.map(({ subject }) => subject)).toEqual([
    ...Array.from({ length: 9 }, (_, at) => `q${at + 10}`),
    ...["", "storage"],
  ]);
  expect(shown[9]).toMatchObject({ kind: "queue.blocked", level: "warning", count: 3 });
  expect(shortenConditions(found.slice(0, 10))).toEqual(found.slice(0, 10));
});

describe("runs", () => {
  const url = "https://app.example/order";
  const makeEnded = (took: number, state: "RUN_SUCCESS" | "RUN_FAILED" = "RUN_SUCCESS") => ({
    ...{ url, createdAt: now - hour, endedAt: now - hour + took, state },
  });
  const ended = Array.from({ length: 5 }, (_, at) => makeEnded((at + 1) * minute));
  const began = (ago: number, of = url) => ({ url: of, createdAt: now - ago });

  test("are slow after four times what 95 % of the earlier runs of the workflow took", () => {
    const slow = findSlowRuns([began(21 * minute), began(20 * minute), began(19 * minute)], ended, now);
    expect(slow).toEqual([{ url, count: 2, since: now - 21 * minute, usual: 5 * minute }]);
    expect(find({ slowRuns: slow })).toMatchObject([
      {
        kind: "runs.slow",
        level: "warning",
        subject: url,
        text:
          "2 runs of https://app.example/order take longer than usual: the oldest began 21 min ago, " +
          "and 95 % end within 5 min",
        count: 2,
      },
    ]);
  });

  test("are not slow within ten minutes, or if it is not known how long they usually take", () => {
    const quick = Array.from({ length: 5 }, () => makeEnded(20));
    expect(findSlowRuns([began(9 * minute)], quick, now)).toEqual([]);
    expect(findSlowRuns([began(10 * minute)], quick, now)).toHaveLength(1);
    expect(findSlowRuns([began(hour)], quick.slice(1), now)).toEqual([]);
    expect(findSlowRuns([began(hour)], Array(9).fill(makeEnded(20, "RUN_FAILED")), now)).toEqual([]);
    expect(findSlowRuns([began(hour, "https://other.example/")], quick, now)).toEqual([]);
  });
});

describe("a host whose address is refused", () => {
  const error = "address 10.0.0.7 is not public: allow it with WAYPOST_EGRESS_ALLOW=10.0.0.7";
  const attempt = (ago: number) => ({
    ...makeAttempt({ host: "10.0.0.7:80", ago, status: 0 }),
    status: null,
    error,
  });

  test("is a problem after its first attempt, with the setting that would allow it", () => {
    expect(find({ log: [attempt(second)] })).toMatchObject([
      { kind: "host.refused", level: "problem", text: `Nothing is sent to 10.0.0.7:80: ${error}` },
    ]);
    expect(list({ log: [attempt(61 * minute)] })).toEqual([]);
    // It began with the first attempt since another result, or with the publish before it.
    const log = [attempt(second), attempt(5 * second), makeAttempt({ host: "10.0.0.7:80", ago: minute })];
    expect(find({ log })[0]?.since).toBe(now - 5 * second);
    const published = (ago: number) => [{ host: "10.0.0.7:80", since: now - ago, why: "" }];
    expect(find({ log, refused: published(9 * second) })[0]?.since).toBe(now - 9 * second);
    expect(find({ log, refused: published(2 * minute) })[0]?.since).toBe(now - 5 * second);
    expect(list({ log: [makeAttempt({ host: "10.0.0.7:80" }), attempt(second)] })).toEqual([]);
  });

  test("is only failing after several attempts, whose error says the same", () => {
    const log = [1, 2, 3].map((at) => attempt(at * second));
    expect(list({ log })).toEqual(["problem host.failing 10.0.0.7:80"]);
    expect(find({ log })[0]?.text).toContain(error);
  });

  test("is known before it has an attempt, and shown once", () => {
    const refused = [{ host: "10.0.0.7:80", since: now, why: "its address is not public" }];
    expect(find({ refused })).toMatchObject([
      { kind: "host.refused", text: "Nothing is sent to 10.0.0.7:80: its address is not public", since: now },
    ]);
    expect(list({ refused, log: [attempt(second)] })).toEqual(["problem host.refused 10.0.0.7:80"]);
  });
});
