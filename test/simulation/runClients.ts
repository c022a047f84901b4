import type { InputOf } from "../../src/core/commands/index.ts";
import type { AccountId, CallbackSettings, HeaderList, InvokerPost, Letter, RunPost, StepHead } from "../../src/core/model/message.ts";
import type { Chance } from "./chance.ts";
import { keys } from "./clients.ts";
import { events, workflowUrl } from "./programs.ts";
import type { Tables } from "./changes.ts";

const features = { lazyFetch: false, initialBody: true, detect: true, captured: true };
/** What endpoints that are workflows answer with. */
export const sdkHeaders: HeaderList = [
  ["Upstash-Workflow-Sdk-Version", "1"],
  ["Upstash-Workflow-Sdk", "v1.0.0"],
];
const ofCallback = ["Upstash-Workflow-Callback", "true"] as const;

/**
 * Several runs may have them, one after another. An endpoint names its run by its name alone, so that what it posts too
 * late may come to another one: what these runs do is not what their workflows say.
 */
export const namesUsedAgain: readonly string[] = ["run-1", "run-2", "run-3"];

type Start = { runId: string; url: string; invoker: InvokerPost | null };

/** A letter that starts a run. */
export function startLetter(chance: Chance, { runId, url, invoker }: Start): Letter {
  const post: RunPost = { kind: "start", runId, url, features, origin: chance.of(["sdk", "sdk", "rest"]), invoker };
  const failureCallback: CallbackSettings | null = chance.happens(0.5)
    ? { ...settings(chance), url, callback: null, failureCallback: null }
    : null;
  return {
    ...{ ...letterFor(chance, url), post, failureCallback, delay: chance.of([null, null, null, 5_000]) },
    flowControl: chance.happens(0.15) ? { key: chance.of(keys), parallelism: chance.between(1, 3), rate: null, period: null } : null,
  };
}

/** A letter by which an endpoint goes on with its run. */
export const stepLetter = (chance: Chance, of: { runId: string; url: string; head: StepHead; out?: string; delay?: number }): Letter => ({
  ...letterFor(chance, of.url),
  ...{ post: { kind: "step", runId: of.runId, head: of.head }, delay: of.delay ?? null },
  body: new TextEncoder().encode(JSON.stringify({ ...of.head, ...(of.out === undefined ? {} : { out: of.out }) })),
});

/** A request to a third party, for a run. */
export function callLetter(chance: Chance, of: { runId: string; url: string; head: StepHead; to: string }): Letter {
  const callback = { ...settings(chance), headers: [ofCallback], url: of.url, callback: null, failureCallback: null };
  return { ...letterFor(chance, of.to), post: { kind: "call", runId: of.runId, head: of.head }, callback };
}

const settings = (chance: Chance) => ({
  ...{ method: "POST" as const, headers: [], retries: chance.between(0, 3), retryDelay: chance.of(["0", "1000", "3000 * (1 + retried)"]) },
  ...{ timeout: chance.of([8_000, 40_000]), flowControl: null },
});

const letterFor = (chance: Chance, url: string): Letter => ({
  ...{ ...settings(chance), brand: "upstash", url, group: null, endpoint: null, queue: null, scheduleId: null, callback: null },
  ...{ failureCallback: null, delay: null, notBefore: null, deduplication: null, labels: [], redaction: null, callerIp: null, tells: null },
  body: new TextEncoder().encode("go"),
});

/** What a client asks for on behalf of runs. */
export type RunRequest = { [N in RequestName]: { name: N; input: InputOf<N> } }[RequestName];
type RequestName = "publish" | "notify" | "cancelRuns" | "resumeRun" | "repeatFailureCallback";

export function randomRunRequest(chance: Chance, account: AccountId, tables: Tables): RunRequest {
  const known = inOrder(tables.runs, account).slice(-8);
  const runId = known.length > 0 && chance.happens(0.95) ? chance.of(known).runId : "never-was";
  const failed = inOrder(tables.deadLetters, account)
    .flatMap((one) => (one.run ? [one.id] : []))
    .slice(-6);
  const dlqId = failed.length > 0 ? chance.of(failed) : "never-was";
  const what = failed.length > 0 && chance.happens(0.25) ? 1 : chance.next();
  if (what < 0.4) {
    const runId = chance.happens(0.4) ? chance.of(namesUsedAgain) : `once-${chance.between(1, 1e9)}`;
    const one = startLetter(chance, { runId, url: workflowUrl(chance.between(1, 40)), invoker: null });
    return { name: "publish", input: { account, letters: chance.happens(0.1) ? [one, one] : [one] } };
  }
  if (what < 0.65) return { name: "notify", input: randomNotify(chance, { account, runId, tables }) };
  if (what < 0.77) return { name: "cancelRuns", input: { account, runIds: [runId, "never-was", runId] } };
  if (what < 0.82) return { name: "repeatFailureCallback", input: { account, dlqId } };
  const overrides = chance.of([{}, {}, { retries: 1 }, { delay: 2_000 }, { runId: chance.of(namesUsedAgain) }]);
  const from = chance.of(["failure", "failure", "beginning"] as const);
  return { name: "resumeRun", input: { account, dlqId, from, overrides, logRetention: 3_600_000 } };
}

/** Stores keep their rows in orders of their own. */
const inOrder = <Row extends { account: string; id: string }>(rows: ReadonlyMap<string, Row>, account: AccountId): Row[] =>
  [...rows.values()].filter((row) => row.account === account).sort((a, b) => (a.id < b.id ? -1 : 1));

/** Each event says something that no other one says. */
function randomNotify(chance: Chance, of: { account: AccountId; runId: string; tables: Tables }): InputOf<"notify"> {
  const { account, runId, tables } = of;
  const event = chance.of(events);
  const body = new TextEncoder().encode(`${event} ${runId} ${chance.between(1, 1e9)}`);
  const waiting = inOrder(tables.waiters, account).filter((one) => one.event === event);
  if (waiting.length > 0 && chance.happens(0.4)) return { account, event, body, waiterIds: waiting.slice(0, 5).map(({ id }) => id) };
  return { account, event, body, runId, kind: chance.of(["event", "event", "webhook"]) };
}
