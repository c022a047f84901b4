import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { AccountId } from "../../../src/engine/core/values/basics.ts";
import type {
  CallbackSettings,
  FlowControl,
  SendSettings,
} from "../../../src/engine/core/model/sendSettings.ts";
import type { Overrides } from "../../../src/engine/core/deadLetters/overrides.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Tables } from "../storage/changes.ts";
import type { RandomSource } from "../randomSource.ts";

type RandomInputOptions = { random: RandomSource; hosts: readonly string[]; now: number };

/** Returns random inputs to random hosts, with every setting of a publish. */
export function randomInputs({ random, hosts, now }: RandomInputOptions): MessageInput[] {
  const count = random.isHit(0.1) ? random.integerBetween(2, 40) : 1;
  // Many messages to one host make waitlists.
  const one = random.isHit(0.5) ? random.of(hosts) : null;
  return Array.from({ length: count }, () =>
    randomInput({ random, hosts: one === null ? hosts : [one], all: hosts, now }),
  );
}

/** Deduplication windows. Null: the default. */
const windows = [null, null, null, null, null, null, null, 1_000, 60_000, 86_400_000];

function randomInput({
  random,
  hosts,
  all,
  now,
}: RandomInputOptions & { all: readonly string[] }): MessageInput {
  const wait = random.next();
  const group = random.isHit(0.06) ? random.of(groups) : null;
  return {
    ...randomSettings(random, all, 3),
    brand: random.of(["svc", "upstash"]),
    url: group === null ? `https://${random.of(hosts)}${makePath(random.integerBetween(1, 9))}` : "",
    body: new TextEncoder().encode("x".repeat(random.integerBetween(0, 20))),
    delay: wait < 0.2 ? random.integerBetween(1, 90_000) : null,
    notBefore: wait > 0.9 ? now + random.integerBetween(-5_000, 60_000) : null,
    group,
    endpoint: null,
    queue: random.isHit(0.25) ? random.of(queues) : null,
    scheduleId: null,
    deduplication: random.isHit(0.15) ? `key-${random.integerBetween(1, 12)}` : null,
    deduplicationWindow: windows[Math.floor(wait * 1_000) % windows.length] ?? null,
    labels: [],
    redaction: null,
    callerIp: null,
    reportsOn: null,
  };
}

/** Returns a path. Most have the same path with different queries. */
const makePath = (number: number): string => (number < 7 ? `/7?${number}` : `/${number}`);

function randomSettings(random: RandomSource, hosts: readonly string[], depth: number): SendSettings {
  const callback = (probability: number): CallbackSettings | null =>
    depth > 0 && random.isHit(probability)
      ? {
          url: `https://${random.of(hosts)}/told`,
          ...randomSettings(random, hosts, depth - 1),
          ...(random.isHit(0.2) ? { delay: random.integerBetween(1, 60_000) } : {}),
        }
      : null;
  return {
    method: "POST",
    headers: [],
    retries: random.isHit(0.2) ? null : random.integerBetween(0, 4),
    retryDelay: random.isHit(0.7)
      ? random.of(["0", "500", "1000 * (1 + retried)", "pow(2, retried) * 3000", "-1"])
      : null,
    timeout: random.isHit(0.01) ? null : random.integerBetween(500, random.of([5_000, 60_000])),
    flowControl: random.isHit(0.25) ? randomFlowControl(random) : null,
    callback: callback(0.12),
    failureCallback: callback(0.25),
  };
}

/** The URL groups of each account. */
export const groups = ["group-1", "group-2"] as const;
/** The queues of each account. */
export const queues = ["queue-1", "queue-2", "queue-3"] as const;
/** The flow-control keys of each account. */
export const keys = ["key-1", "key-2", "key-3"] as const;

/**
 * Returns limits that change from message to message. A long period is rare, because messages that wait for
 * it make a run long.
 */
function randomFlowControl(random: RandomSource): FlowControl {
  const kind = random.next();
  return {
    key: random.of(keys),
    parallelism: kind < 0.7 ? random.integerBetween(1, 3) : null,
    rate: kind > 0.4 ? random.integerBetween(1, 4) : null,
    period: random.of([null, 500, 2_000, 20_000, random.isHit(0.1) ? 2 * 3_600_000 : 1_000]),
  };
}

/** The ids that the clients of one account know and can use in requests. */
export type ClientState = { account: AccountId; messageIds: string[]; dlqIds: string[] };

/** Returns a cancellation of some messages, at times of one that waits for a limit of its account. */
export function randomCancel(
  random: RandomSource,
  { account, messageIds }: ClientState,
  { messages }: Pick<Tables, "messages">,
): CommandInput<"cancel"> {
  const waiting = random.isHit(0.4)
    ? [...messages.values()].find(
        (state) => state.account === account && /^(?:endpoint|account):/.test(state.waitlist ?? ""),
      )
    : undefined;
  return { account, messageIds: waiting ? [waiting.id] : pickSome(random, messageIds) };
}

/** Returns a retry of some dead letters. */
export function randomRetry(
  random: RandomSource,
  { account, dlqIds }: ClientState,
  logRetention: number,
): CommandInput<"retryDeadLetters"> {
  return { account, dlqIds: pickSome(random, dlqIds), logRetention, overrides: randomOverrides(random) };
}

/** Returns the settings that a retry replaces, mostly none. */
export function randomOverrides(random: RandomSource): Overrides {
  const ofKey = random.isHit(0.3) ? { flowControl: randomFlowControl(random) } : {};
  return random.isHit(0.3)
    ? { retries: random.integerBetween(0, 2), delay: random.integerBetween(0, 5_000), ...ofKey }
    : {};
}

/** Picks some entries of a list, mostly recent ones; sometimes one of them twice, and an unknown one. */
export function pickSome(random: RandomSource, ids: readonly string[]): string[] {
  const recent = ids.slice(-20);
  const chosen = Array.from({ length: Math.min(recent.length, random.integerBetween(1, 4)) }, () =>
    random.of(recent),
  );
  return random.isHit(0.1) ? [...chosen, "never_was"] : chosen;
}
