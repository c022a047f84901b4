import type { Gate, GateKind } from "../admission/gate.ts";
import type { Actor } from "../model/auditEntry.ts";
import type { Limiter } from "../model/limiter.ts";
import type { Millis } from "../values/basics.ts";
import { minute } from "../values/time.ts";
import type { Condition } from "./condition.ts";
import { formatMany, formatSpan, makeCondition } from "./condition.ts";

/** The messages of a queue or key that were published in a minute, and the attempts that ended in it. */
export type GateFlow = { published: number; ended: number };

/**
 * A queue, a key or a limit of the account that is paused or holds messages. `held`: the number of them, and
 * `more` if there are more. `dueAt`: when the oldest was due, and `passedAt`: when a message that had passed
 * the gate was last accepted; null if that is not known. `flow`: the last minutes, if they were read.
 * `pulled`: the origin if clients pull its messages. `holds`: since when they hold each of their attempts. It
 * is null if too many messages are in flight to look.
 */
export type GateFact = {
  gate: Gate;
  limiter: Pick<Limiter, "paused" | "rate" | "period" | "windowStart" | "windowUsed"> | null;
  held: { count: number; more: boolean };
  dueAt: Millis | null;
  passedAt: Millis | null;
  flow: readonly GateFlow[] | null;
  pulled?: { origin: string; holds: readonly Millis[] | null } | null | undefined;
};

/** A pause that the audit log records. */
export type PauseFact = { gate: Gate; time: Millis; by: Actor };

/** A message that has been due for this long at a gate is blocked, unless its queue or key moves. */
const blockedAfter: Millis = minute;

/** The minutes of a flow. After a single burst, a backlog does not grow in each of them. */
export const flowMinutes = 3;
/** A backlog whose oldest message has been due for this long can be one that grows without end. */
export const growsAfter: Millis = 5 * minute;

/** A queue or key moves if one of its messages was accepted within this time. */
const movesWithin: Millis = 5 * minute;

const gateNames: Readonly<Record<GateKind, string>> = {
  queue: "Queue",
  key: "Key",
  endpoint: "The account's limit for the endpoint",
  account: "The account's limit",
  capacity: "The server's capacity for the host",
};

export function findGateCondition(fact: GateFact, pauses: readonly PauseFact[], now: Millis): Condition[] {
  const { gate, limiter, held, dueAt } = fact;
  const { kind, name } = gate;
  const number = `${held.count}${held.more ? "+" : ""}`;
  const waiting = `${number} ${held.count === 1 ? "message waits" : "messages wait"}`;
  const title = `${gateNames[kind]} ${name}`.trim();
  const common = {
    subject: name === "" ? kind : name,
    count: held.count,
    since: dueAt,
    oldestDueAt: dueAt,
  };
  if (limiter?.paused === true && (kind === "queue" || kind === "key")) {
    const pause = pauses.find((one) => one.gate.kind === kind && one.gate.name === name);
    return [
      makeCondition({
        ...common,
        kind: `${kind}.paused`,
        level: held.count > 0 ? "warning" : "note",
        text: `${title} is paused${held.count > 0 ? `: ${waiting}` : ""}`,
        since: pause?.time ?? dueAt,
        by: pause?.by ?? null,
      }),
    ];
  }
  if (dueAt === null || now - dueAt < blockedAfter) return [];
  const backlog = `${waiting}, the oldest for ${formatSpan(now - dueAt)}`;
  if (kind !== "queue" && kind !== "key")
    return [
      makeCondition({
        ...{ ...common, kind: "limit.blocked", level: "warning", text: `${title}: ${backlog}` },
        ...(fact.pulled && describePullers(fact.pulled, { dueAt, backlog })),
      }),
    ];
  const isMoving = hasMoved(fact, now);
  if (isMoving && isGrowing(fact, now))
    return [
      makeCondition({
        ...common,
        kind: `${kind}.drowning`,
        level: "warning",
        text:
          `${title} gets more messages than its limits let through: ` +
          `${describeFlow(fact.flow)}; ${backlog}`,
      }),
    ];
  return [
    makeCondition({
      ...common,
      kind: isMoving ? `${kind}.limited` : `${kind}.blocked`,
      level: isMoving ? "note" : "warning",
      text: isMoving
        ? `${title} sends as fast as its limits allow: ${backlog}${forecast(fact, now)}`
        : `${title}: ${backlog}`,
    }),
  ];
}

/**
 * Messages to a pulled origin wait for clients, and never for the capacity of the server alone. Clients get
 * them in order. So a client that has got nothing since the oldest was due has not pulled since then: it may
 * work on an earlier message, or be dead.
 */
function describePullers(
  { origin: subject, holds }: NonNullable<GateFact["pulled"]>,
  { dueAt, backlog }: { dueAt: Millis; backlog: string },
): Partial<Condition> {
  const hold = holds ? `hold ${formatMany(holds.length, "message", "messages")}` : "may be busy";
  const text = `The clients of ${subject} ${hold}: ${backlog}`;
  if (!holds || holds.some((since) => since >= dueAt))
    return { kind: "puller.busy", level: "note", subject, text };
  const earlier = holds.length === 0 ? "" : `. Clients still ${hold} from before`;
  return { kind: "puller.missing", subject, text: `No client pulls from ${subject}: ${backlog}${earlier}` };
}

/** Reports whether messages pass a queue or key: its rate is used up, or one of its messages was accepted. */
const hasMoved = ({ limiter, passedAt }: GateFact, now: Millis): boolean =>
  (passedAt !== null && passedAt > now - movesWithin) || (limiter !== null && isRateUsedUp(limiter, now));

/** Reports whether more messages arrive than leave, for minutes. */
const isGrowing = ({ dueAt, flow }: GateFact, now: Millis): boolean =>
  dueAt !== null &&
  now - dueAt >= growsAfter &&
  flow !== null &&
  flow.every(({ published, ended }) => published > ended);

function describeFlow(flow: GateFact["flow"]): string {
  const sum = (read: (one: GateFlow) => number): number =>
    (flow ?? []).reduce((total, one) => total + read(one), 0);
  const [arrived, sent] = [sum((one) => one.published), sum((one) => one.ended)];
  return `${arrived} published and ${sent} sent in ${flowMinutes} minutes`;
}

/** A window that has ended counts for a moment: the next one begins only when the gate is looked at. */
const isRateUsedUp = (
  { rate, period, windowStart, windowUsed }: NonNullable<GateFact["limiter"]>,
  now: Millis,
): boolean => rate !== null && windowUsed >= rate && now < windowStart + period + minute;

/** Returns when a key with a rate will have sent what it holds, as the end of a sentence. */
function forecast({ gate, limiter, held }: GateFact, now: Millis): string {
  if (gate.kind !== "key" || !limiter || limiter.rate === null || limiter.rate === 0 || held.more) return "";
  const windows = Math.ceil(held.count / limiter.rate);
  const left = Math.max(0, limiter.windowStart + windows * limiter.period - now);
  return `. The last one is sent in about ${formatSpan(left)}`;
}
