import { describe, expect, test } from "vitest";
import type { Gate } from "../../../src/engine/core/admission/gate.ts";
import type { Condition } from "../../../src/engine/core/explain/condition.ts";
import type { ConditionFacts, ServerFacts } from "../../../src/engine/core/explain/conditions.ts";
import { makeCondition } from "../../../src/engine/core/explain/condition.ts";
import { findConditions } from "../../../src/engine/core/explain/conditions.ts";
import type { AlertFacts, FoundAlerts } from "../../../src/operations/alerts/pickAlerts.ts";
import {
  countDropped,
  findNotices,
  findServerNotices,
  formatAlertBody,
  leaseAlert,
  listOldAlerts,
  makeAlert,
  maxAlertsPerEvent,
  maxDroppedPerHour,
  maxKeptAlerts,
  settleAlert,
  toAlertId,
} from "../../../src/operations/alerts/pickAlerts.ts";
import type { Alert, AlertEvent, AlertNotice } from "../../../src/operations/alerts/alert.ts";
import { alertEvents } from "../../../src/operations/alerts/alert.ts";
import { hour, minute, second } from "../../../src/engine/core/values/time.ts";

const now = Math.floor(1_800_000_000_000 / hour) * hour + 30 * minute;

type Facts = Pick<AlertFacts, "deadLetters"> &
  Pick<ConditionFacts, "log" | "failing" | "gates" | "schedules" | "storage"> &
  Pick<ServerFacts, "disk">;

const quiet: Facts = {
  deadLetters: [],
  log: [],
  failing: [],
  gates: [],
  schedules: [],
  storage: { used: 0, max: 100 },
  disk: null,
};

function findAll(
  known: Partial<Facts>,
  { earlier = [], events = alertEvents, at = now, lastRotation, others = [] }: FindOptions = {},
): FoundAlerts {
  const { deadLetters, disk, ...facts } = { ...quiet, ...known };
  const server = {
    ...{
      refuses: null,
      notReady: null,
      isHeld: false,
      lostBatches: 0,
      lostNodes: [],
      copy: null,
      disk,
      isOperators: true,
    },
  };
  const found = findConditions(
    { ...facts, server, refuses: null, inFlight: [], refused: [], pauses: [], slowRuns: [] },
    at,
  );
  const alerts = { url: "https://ops.example/", after: 5 * minute, events };
  const account = { alerts, ...(lastRotation && { lastRotation }) };
  const conditions = [...found, ...others];
  return findNotices({ account, conditions, deadLetters, log: facts.log, earlier, now: at });
}

const find = (facts: Partial<Facts>, options: FindOptions = {}): AlertNotice[] =>
  findAll(facts, options).notices;

type FindOptions = {
  earlier?: readonly Alert[];
  events?: readonly AlertEvent[];
  at?: number;
  lastRotation?: { at: number; key: string };
  /** Conditions of operations. */
  others?: readonly Condition[];
};

const listEvents = (notices: readonly AlertNotice[]): string[] =>
  notices.map(({ event, subject }) => `${event} ${subject}`);

const makeGate = (gate: Gate, dueAt: number): Facts["gates"][number] => ({
  gate,
  limiter: null,
  held: { count: 1, more: false },
  dueAt,
  passedAt: null,
  flow: null,
});

const attempts = (host: string, results: readonly (readonly [ago: number, status: number])[]) =>
  results.map(([ago, status]) => ({
    time: now - ago,
    status,
    error: null,
    attempt: { host, startedAt: now - ago, duration: 5, node: "nod" },
    tags: [],
    states: [],
  })) as unknown as Facts["log"];

describe("an alert is created for", () => {
  test("dead letters, by URL and cause, with their number", () => {
    const failed = { url: "https://shop.example/", status: 500, error: null };
    const refused = { ...failed, status: null, error: "connection refused" };
    const notices = find({ deadLetters: [failed, failed, refused] });
    expect(notices).toEqual([
      expect.objectContaining({
        event: "deadLetter.created",
        subject: "https://shop.example/ 500",
        count: 2,
      }),
      expect.objectContaining({ subject: "https://shop.example/ connection refused", count: 1 }),
    ]);
  });

  test.each([
    [
      "a host that has failed for long enough",
      [
        [6 * minute, 500],
        [3 * minute, 500],
        [minute, 503],
      ],
      true,
    ],
    [
      "no host that has failed for a moment",
      [
        [2 * minute, 500],
        [minute, 500],
        [second, 500],
      ],
      false,
    ],
    [
      "no host with few attempts",
      [
        [6 * minute, 500],
        [minute, 500],
      ],
      false,
    ],
    [
      "no host that has accepted something since",
      [
        [6 * minute, 500],
        [4 * minute, 500],
        [minute, 200],
      ],
      false,
    ],
    [
      "no host that failed long ago",
      [
        [3 * hour, 500],
        [2 * hour, 500],
        [2 * hour, 500],
      ],
      false,
    ],
  ] as const)("%s", (_, results, isAlerted) => {
    expect(listEvents(find({ log: attempts("a.example", results) }))).toEqual(
      isAlerted ? ["host.failing a.example"] : [],
    );
  });

  test("a host of a busy account, of which the log has only the last seconds", () => {
    const log = attempts("a.example", [
      [second, 500],
      [2 * second, 500],
      [3 * second, 500],
    ]);
    const seen = { host: "a.example", failures: 10, since: now - 6 * minute, last: now - second };
    expect(listEvents(find({ log, failing: [seen] }))).toEqual(["host.failing a.example"]);
    expect(listEvents(find({ failing: [seen] }))).toEqual(["host.failing a.example"]);
    expect(find({ log, failing: [{ ...seen, since: now - minute }] })).toEqual([]);
    expect(find({ failing: [{ ...seen, failures: 2 }] })).toEqual([]);
    expect(find({ failing: [{ ...seen, since: now - 3 * hour, last: now - 2 * hour }] })).toEqual([]);
    // Another node has reached it.
    expect(find({ log: [...log, ...attempts("a.example", [[4 * minute, 200]])], failing: [seen] })).toEqual(
      [],
    );
  });

  test("no host whose endpoints settle deliveries by steps, although some attempts failed", () => {
    const failed = attempts("a.example", [
      [9 * minute, 500],
      [6 * minute, 500],
      [2 * minute, 500],
    ]);
    const settled = {
      time: now - minute,
      status: null,
      error: null,
      settledHost: "a.example",
      tags: [],
      states: [],
    };
    expect(listEvents(find({ log: failed }))).toEqual(["host.failing a.example"]);
    expect(find({ log: [...failed, settled] })).toEqual([]);
    const notice: AlertNotice = { event: "host.failing", subject: "a.example", text: "" };
    const earlier = [makeAlert("acc", notice, now - 2 * minute)];
    expect(listEvents(find({ log: [...failed, settled] }, { earlier }))).toEqual([
      "host.recovered a.example",
    ]);
  });

  test("a host that is well again, once, and only after an alert that it failed", () => {
    const notice: AlertNotice = { event: "host.failing", subject: "a.example", text: "" };
    const failing = makeAlert("acc", notice, now - 2 * minute);
    const log = attempts("a.example", [
      [9 * minute, 500],
      [minute, 200],
    ]);
    expect(listEvents(find({ log }, { earlier: [failing] }))).toEqual(["host.recovered a.example"]);
    expect(find({ log })).toEqual([]);
    const recovered = makeAlert("acc", { ...notice, event: "host.recovered" }, now - minute);
    expect(find({ log }, { earlier: [recovered, failing] })).toEqual([]);
    // The success was before the host failed.
    expect(find({ log }, { earlier: [{ ...failing, createdAt: now }] })).toEqual([]);
  });

  test("gates, schedules, sources, limits and keys", () => {
    const notices = find(
      {
        gates: [
          makeGate({ kind: "queue", name: "slow" }, now - 6 * minute),
          makeGate({ kind: "queue", name: "busy" }, now - minute),
          makeGate({ kind: "key", name: "carrier" }, now - hour),
        ],
        schedules: [
          { id: "late", dueAt: now - 6 * minute, paused: false, lastAt: null },
          { id: "paused", dueAt: now - 6 * minute, paused: true, lastAt: null },
          { id: "refused", dueAt: now + hour, paused: false, lastAt: now - minute, passedOver: "full" },
        ],
        storage: { used: 90, max: 100 },
        disk: { free: 10, total: 100 },
      },
      {
        lastRotation: { at: now - minute, key: "secret" },
        others: [
          makeCondition({ kind: "source.rejecting", level: "problem", subject: "src_1", text: "", count: 3 }),
          makeCondition({ kind: "source.paused", level: "note", subject: "src_2", text: "" }),
        ],
      },
    );
    expect(listEvents(notices)).toEqual([
      ...["schedule.late late", "schedule.refused refused", "queue.blocked slow", "key.blocked carrier"],
      ...["storage.low storage", "disk.low disk", "source.rejecting src_1"],
      `signingKey.rotated ${new Date(now - minute).toISOString()}`,
    ]);
    expect(JSON.stringify(notices)).not.toContain("secret");
    expect(find({ storage: { used: 89, max: 100 }, disk: { free: 11, total: 100 } })).toEqual([]);
  });
});

test("a schedule that was refused once causes one alert, and a paused queue one after the wait", () => {
  const schedule = { id: "weekly", dueAt: now + 24 * hour, paused: false, passedOver: "full" };
  expect(listEvents(find({ schedules: [{ ...schedule, lastAt: now - minute }] }))).toHaveLength(1);
  expect(find({ schedules: [{ ...schedule, lastAt: now - 2 * hour }] })).toEqual([]);
  const paused = { paused: true, rate: null, period: second, windowStart: 0, windowUsed: 0 };
  const gate = makeGate({ kind: "queue", name: "mail" }, now - minute);
  expect(find({ gates: [{ ...gate, limiter: paused }] })).toEqual([]);
  expect(listEvents(find({ gates: [{ ...gate, limiter: paused, dueAt: now - 6 * minute }] }))).toEqual([
    "queue.blocked mail",
  ]);
});

describe("an alert about the server is created for", () => {
  const alerts = {
    url: "https://ops.example/",
    events: ["disk.low", "storage.low"],
    secret: "whsec_s",
  } as const;
  const disk = { free: 10, total: 100 };
  const accounts = [
    { id: "acc_1", name: "shop", used: 90, max: 100 },
    { id: "acc_2", name: "bank", used: 89, max: 100 },
  ];

  test("the disk and accounts near their limit, once in an hour", () => {
    const found = findServerNotices({ alerts, disk, accounts, earlier: [], now }).notices;
    expect(listEvents(found)).toEqual(["disk.low disk", "storage.low acc_1"]);
    expect(found[1]?.text).toContain("account shop");
    const earlier = found.map((notice) => makeAlert("", notice, now));
    expect(findServerNotices({ alerts, disk, accounts, earlier, now }).notices).toEqual([]);
    expect(findServerNotices({ alerts, disk, accounts, earlier, now: now + hour }).notices).toHaveLength(2);
  });

  test("the chosen events alone", () => {
    const chosen = { ...alerts, events: ["storage.low"] as const };
    expect(
      listEvents(findServerNotices({ alerts: chosen, disk, accounts, earlier: [], now }).notices),
    ).toEqual(["storage.low acc_1"]);
    expect(findServerNotices({ alerts, disk: null, accounts: [], earlier: [], now }).notices).toEqual([]);
  });
});

describe("no alert is created for", () => {
  const deadLetters = [{ url: "https://shop.example/", status: 500, error: null }];

  test("the same again within an hour, but later", () => {
    const [notice] = find({ deadLetters });
    const earlier = [makeAlert("acc", notice as AlertNotice, now)];
    expect(find({ deadLetters }, { earlier })).toEqual([]);
    // The hour of the clock ends after 30 minutes.
    expect(find({ deadLetters }, { earlier, at: now + hour - 1 })).toEqual([]);
    expect(find({ deadLetters }, { earlier, at: now + hour })).toHaveLength(1);
  });

  test("the query of each URL", () => {
    const deadLetters = ["a?id=1", "a?id=2", "a?id=3&url=b?c"].map((path) => ({
      url: `https://shop.example/${path}`,
      status: 500,
      error: null,
    }));
    expect(find({ deadLetters })).toEqual([
      expect.objectContaining({ subject: "https://shop.example/a 500", count: 3 }),
    ]);
  });

  test("dead letters instead of another event, however many there are", () => {
    const many = Array.from({ length: 100 }, (_, at) => ({
      url: `https://${at}.example/`,
      status: 500,
      error: null,
    }));
    const notices = find({
      deadLetters: many,
      storage: { used: 95, max: 100 },
      disk: { free: 1, total: 100 },
    });
    expect(listEvents(notices)).toEqual(expect.arrayContaining(["storage.low storage", "disk.low disk"]));
  });

  test("about events that it did not choose", () =>
    expect(find({ deadLetters }, { events: ["host.failing"] })).toEqual([]));

  test("more than a number of times in an hour", () => {
    const many = Array.from({ length: 100 }, (_, at) => ({
      url: `https://${at}.example/`,
      status: 500,
      error: null,
    }));
    const first = findAll({ deadLetters: many });
    expect(first.notices).toHaveLength(maxAlertsPerEvent);
    expect(first.dropped).toHaveLength(100 - maxAlertsPerEvent);
    const earlier = first.notices.map((one) => makeAlert("acc", one, now));
    expect(findAll({ deadLetters: many }, { earlier })).toEqual({ notices: [], dropped: first.dropped });
    expect(find({ deadLetters: many }, { earlier: earlier.slice(0, -1) })).toHaveLength(1);
    const about = countDropped({ account: "acc", now, before: undefined }, first.dropped);
    expect(about).toMatchObject({ event: "alerts.dropped", count: 90, state: "pending", dueAt: now });
    // It uses up no place, and what it is about is not found again in this hour.
    expect(findAll({ deadLetters: many }, { earlier: [...earlier, about] })).toEqual({
      notices: [],
      dropped: [],
    });
    const freed = findAll({ deadLetters: many }, { earlier: [...earlier.slice(0, -1), about] });
    expect(freed).toEqual({ notices: first.notices.slice(-1), dropped: [] });
    const more = findAll({ deadLetters: many }, { earlier: [...earlier, about], at: now + hour });
    expect(more.notices).toHaveLength(maxAlertsPerEvent);
    expect(more.dropped).toHaveLength(90);
  });

  test("dropped alerts twice, and at most 1,000 of an hour are counted", () => {
    const ids = Array.from({ length: 1_200 }, (_, at) => `id ${at}`);
    const of = (before: Alert | undefined, some: readonly string[]) =>
      countDropped({ account: "acc", now, before }, some);
    const one = of(undefined, ids.slice(0, 2));
    const sent: Alert = { ...one, state: "sent", dueAt: null };
    expect(of(sent, ids.slice(1, 3))).toMatchObject({ count: 3, state: "sent", dueAt: null, id: one.id });
    expect(of(one, ids).count).toBe(maxDroppedPerHour);
  });

  test("long texts in full", () => {
    const [notice] = find({
      deadLetters: [{ url: `https://x.example/${"a".repeat(5000)}`, status: 1, error: null }],
    });
    expect(notice?.subject).toHaveLength(300);
    expect(notice?.text).toHaveLength(500);
  });
});

describe("an alert", () => {
  const notice: AlertNotice = { event: "queue.blocked", subject: "a", text: "t" };

  test("is sent again with growing pauses, and then fails", () => {
    let alert = makeAlert("acc", notice, now);
    let at = now;
    const pauses: number[] = [];
    for (let attempt = 0; attempt < 5; attempt++) {
      const taken = leaseAlert(alert, at);
      expect(taken.dueAt).toBe(at + minute);
      alert = settleAlert(taken, { status: 500, error: null }, at);
      if (alert.dueAt === null) break;
      pauses.push(alert.dueAt - at);
      at = alert.dueAt;
    }
    expect(pauses).toEqual([10 * second, minute, 10 * minute, hour]);
    expect(alert).toMatchObject({ state: "failed", attempts: 5, status: 500, dueAt: null });
    const sent = settleAlert(
      leaseAlert(makeAlert("acc", notice, now), now),
      { status: 204, error: null },
      now,
    );
    expect(sent).toMatchObject({ state: "sent", attempts: 1, dueAt: null });
  });

  test("has one id for its event and subject in an hour", () => {
    expect(toAlertId(notice, now)).toBe(toAlertId(notice, now + minute));
    expect(toAlertId(notice, now)).not.toBe(toAlertId(notice, now + hour));
    expect(toAlertId(notice, now)).not.toBe(toAlertId({ ...notice, subject: "b" }, now));
    expect(toAlertId(notice, now) < toAlertId(notice, now + hour)).toBe(true);
  });

  test("is kept for a while", () => {
    const alerts = Array.from({ length: maxKeptAlerts + 2 }, (_, at) =>
      makeAlert("acc", { ...notice, subject: String(at) }, now - at),
    );
    expect(listOldAlerts(alerts, now)).toEqual(alerts.slice(-2).map(({ id }) => id));
    expect(listOldAlerts(alerts.slice(0, 3), now + 8 * 24 * hour)).toHaveLength(3);
  });

  test("has a body without secrets", () => {
    const body = formatAlertBody({ id: "acc", name: "shop" }, makeAlert("acc", { ...notice, count: 2 }, now));
    expect(JSON.parse(body)).toEqual({
      alertId: toAlertId(notice, now),
      ...{ event: "queue.blocked", subject: "a", text: "t", count: 2, time: now },
      account: { id: "acc", name: "shop" },
    });
  });
});
