import type { Decision, Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { LimiterGate } from "../admission/gate.ts";
import { hasLimiter, keyGate, parseGate } from "../admission/gate.ts";
import type { LimiterName } from "../admission/limiter.ts";
import { findLimiter, putLimiter, readLimiter, readWindow, toLimiterKey } from "../admission/limiter.ts";
import type { AccountId, Flow, Millis } from "../model/message.ts";
import type { MostQueues } from "../sending/quotas.ts";
import { needsOfQueues, takeQueue } from "../sending/quotas.ts";
import { existing } from "../accounts/plans.ts";
import { flowLimitBrokenBy } from "./publish.ts";

/** A queue or a key, by the id of its limiter. */
export type FlowName = { account: AccountId; id: string };
export type KeyName = { account: AccountId; key: string };

const needsOfFlow = ({ account, id }: FlowName) => ({ flows: [[account, id] as const] });
const needsOfKey = (name: KeyName) => ({ flows: [toLimiterKey(toLimiterName(name))] });

const toLimiterName = ({ account, key }: KeyName): LimiterName => ({ account, gate: keyGate(key) });

function parseLimiterGate(id: string): LimiterGate {
  const gate = parseGate(id);
  if (!hasLimiter(gate)) throw new Error(`limiter ${id}: this gate has none`);
  return gate;
}

/**
 * Lets nothing more begin in a queue or under a key, known or not yet. What has begun goes on. Throws `Refusal` for a queue that would be
 * one too many.
 */
export const pauseFlow: Decision<FlowName & MostQueues, Flow> = {
  needs: ({ account, id }) => ({ accounts: [[account]], flows: [[account, id]] }),
  further: ({ account, id, mostQueues }, draft) => needsOfQueues(draft, account, [{ queue: readQueueName(id) }], { mostQueues }),
  decide: ({ account, id, mostQueues }, draft, moment) => {
    const queue = readQueueName(id);
    if (queue !== null) takeQueue(draft, existing(draft.get("accounts", account)), { name: queue, mostQueues });
    return setPaused(draft, moment, readLimiter(draft, moment, { account, gate: parseLimiterGate(id) }), true);
  },
};

/** Returns the name of a queue by the id of its limiter, or null if the limiter is that of another gate. */
function readQueueName(id: string): string | null {
  const { kind, name } = parseGate(id);
  return kind === "queue" ? name : null;
}

/** Lets a queue or a key go on, oldest message first. Null: it is not known, so nothing holds it back. */
export const resumeFlow: Decision<FlowName, Flow | null> = {
  needs: needsOfFlow,
  decide: ({ account, id }, draft, moment) => {
    const flow = draft.get("flows", account, id);
    return flow ? setPaused(draft, moment, flow, false) : null;
  },
};

const setPaused = (draft: Draft, moment: Moment, flow: Flow, paused: boolean): Flow =>
  flow.paused === paused && draft.get("flows", flow.account, flow.id) ? flow : changed(draft, moment, { ...flow, paused });

/** Writes a flow that somebody has changed by hand, and answers it as it is then. */
export function changed(draft: Draft, moment: Moment, flow: Flow): Flow {
  putLimiter(draft, moment, { ...flow, updatedAt: moment.now });
  return draft.get("flows", flow.account, flow.id) ?? flow;
}

/** What is to be pinned. `undefined`: not given. `period` in milliseconds. */
export type Pins = { parallelism?: number | undefined; rate?: number | undefined; period?: Millis | undefined };

/**
 * Sets limits of a key, known or not yet, that messages cannot change until they are unpinned. Rate and period are
 * pinned together, and a new window begins. Throws `Refusal` for limits beyond those of `core/values/limits.ts`, and for a
 * period without a rate.
 */
export const pinFlow: Decision<KeyName & Pins, Flow> = {
  needs: needsOfKey,
  decide: ({ account, key, parallelism, rate, period }, draft, moment) => {
    const broken = flowLimitBrokenBy({ parallelism: parallelism ?? null, rate: rate ?? null, period: period ?? null });
    if (broken) throw new Refusal(broken.refused, broken.message);
    const flow = readLimiter(draft, moment, { account, gate: keyGate(key) });
    if (period !== undefined && rate === undefined && flow.rate === null)
      throw new Refusal("invalid", "period: the key has no rate that it could be the period of; give rate as well");
    const pinsRate = rate !== undefined || period !== undefined;
    const ofRate = { rate: rate ?? flow.rate, period: period ?? flow.period, windowStart: moment.now, windowUsed: 0 };
    return changed(draft, moment, {
      ...flow,
      ...(parallelism === undefined ? {} : { parallelism }),
      ...(pinsRate ? ofRate : {}),
      pinned: { parallelism: flow.pinned.parallelism || parallelism !== undefined, rate: flow.pinned.rate || pinsRate },
    });
  },
};

/** Lets messages change limits of a key again. They stay as they are until one does. Null: the key is not known. */
export const unpinFlow: Decision<KeyName & { parallelism: boolean; rate: boolean }, Flow | null> = {
  needs: needsOfKey,
  decide: ({ account, key, parallelism, rate }, draft, moment) => {
    const flow = findLimiter(draft, { account, gate: keyGate(key) });
    if (!flow) return null;
    const pinned = { parallelism: flow.pinned.parallelism && !parallelism, rate: flow.pinned.rate && !rate };
    return changed(draft, moment, { ...flow, pinned });
  },
};

/** Begins a new window of a key, in which nothing has begun yet. Null: the key is not known. */
export const resetRate: Decision<KeyName, Flow | null> = {
  needs: needsOfKey,
  decide: ({ account, key }, draft, moment) => {
    const flow = findLimiter(draft, { account, gate: keyGate(key) });
    return flow ? changed(draft, moment, { ...flow, windowStart: moment.now, windowUsed: 0 }) : null;
  },
};

/** A flow with its window as it is now. */
export const flowAt = (flow: Flow, now: Millis): Flow => ({ ...flow, ...readWindow(flow, now) });
