import { defaultCallback } from "../../../src/engine/core/deadLetters/overrides.ts";
import type { RunOverrides } from "../../../src/engine/core/deadLetters/resume.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Run } from "../../../src/engine/core/model/run.ts";
import type {
  InvokerPost,
  RunFeatures,
  RunOnRequest,
  RunPost,
  StepHead,
} from "../../../src/engine/core/model/runPost.ts";
import type { CallbackSettings } from "../../../src/engine/core/model/sendSettings.ts";
import type { AccountId, Bytes, HeaderList } from "../../../src/engine/core/values/basics.ts";
import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { RandomSource } from "../randomSource.ts";
import { keys } from "./clients.ts";
import { events, workflowUrl } from "./programs.ts";
import type { Tables } from "../storage/changes.ts";

/** Reports whether the client of a run keeps the settings of its start. Some do not. */
export const keepsSettings = (runId: string): boolean => !/[2468]$/.test(runId);

/** Returns the features of a run. */
const featuresOf = (runId: string) => ({
  lazyFetch: false,
  initialBody: true,
  detect: true,
  captured: keepsSettings(runId),
});

/** The response headers of workflow endpoints. */
export const sdkHeaders: HeaderList = [
  ["Upstash-Workflow-Sdk-Version", "1"],
  ["Upstash-Workflow-Sdk", "v1.0.0"],
];
const callbackHeader = ["Upstash-Workflow-Callback", "true"] as const;

/**
 * Ids that several runs use, one after another. An endpoint names its run only by id, so a late post may
 * reach another run. These runs may differ from their workflows.
 */
export const reusedRunIds: readonly string[] = ["run-1", "run-2", "run-3"];

type Start = { runId: string; url: string; invoker: InvokerPost | null };

/** Returns an input that starts a run. */
export function makeStartInput(random: RandomSource, { runId, url, invoker }: Start): MessageInput {
  const post: RunPost = {
    kind: "start",
    runId,
    url,
    features: featuresOf(runId),
    origin: random.of(["sdk", "sdk", "rest"]),
    invoker,
  };
  const failureCallback: CallbackSettings | null = random.isHit(0.5)
    ? { ...settings(random), url, callback: null, failureCallback: null }
    : null;
  return {
    ...makeRunInput(random, url),
    post,
    failureCallback,
    delay: random.of([null, null, null, 5_000]),
    flowControl: random.isHit(0.15)
      ? { key: random.of(keys), parallelism: random.integerBetween(1, 3), rate: null, period: null }
      : null,
  };
}

/** Returns what the client at the endpoint of a run tells with each result of a parallel step. */
const tellFeatures = (runId: string): { features: RunFeatures } => ({
  features: { ...featuresOf(runId), lazyFetch: true },
});

/** Returns an input by which an endpoint continues its run. */
export const makeStepInput = (
  random: RandomSource,
  of: {
    runId: string;
    url: string;
    head: StepHead;
    out?: string;
    delay?: number;
    runOn?: RunOnRequest | undefined;
  },
): MessageInput => ({
  ...makeRunInput(random, of.url),
  post: {
    kind: "step",
    runId: of.runId,
    head: of.head,
    ...(of.head.concurrent > 1 && tellFeatures(of.runId)),
    ...(of.runOn && { runOn: of.runOn }),
  },
  failureCallback: { ...defaultCallback(`${of.url}?step`), retries: 1, retryDelay: "1000" },
  delay: of.delay ?? null,
  body: encodeStep(of.head, of.out),
});

/** Returns the body of a post of a step. */
export const encodeStep = (head: StepHead, out?: string): Bytes =>
  new TextEncoder().encode(JSON.stringify({ ...head, ...(out === undefined ? {} : { out }) }));

/** Returns a request of a run to a third party. */
export function makeCallInput(
  random: RandomSource,
  of: { runId: string; url: string; head: StepHead; to: string },
): MessageInput {
  const callback = {
    ...settings(random),
    headers: [callbackHeader],
    url: of.url,
    callback: null,
    failureCallback: null,
  };
  return { ...makeRunInput(random, of.to), post: { kind: "call", runId: of.runId, head: of.head }, callback };
}

const settings = (random: RandomSource) => ({
  method: "POST" as const,
  headers: [],
  retries: random.integerBetween(0, 3),
  retryDelay: random.of(["0", "1000", "3000 * (1 + retried)"]),
  timeout: random.of([8_000, 40_000]),
  flowControl: null,
});

const makeRunInput = (random: RandomSource, url: string): MessageInput => ({
  ...settings(random),
  brand: "upstash",
  url,
  group: null,
  endpoint: null,
  queue: null,
  scheduleId: null,
  callback: null,
  failureCallback: null,
  delay: null,
  notBefore: null,
  deduplication: null,
  labels: [],
  redaction: null,
  callerIp: null,
  reportsOn: null,
  body: new TextEncoder().encode("go"),
});

/** A client request about runs. */
export type RunRequest = { [N in RequestName]: { name: N; input: CommandInput<N> } }[RequestName];
type RequestName = "publish" | "notify" | "cancelRuns" | "resumeRun" | "repeatFailureCallback";

/** Returns a random request about the workflow runs of an account. */
export function randomRunRequest(random: RandomSource, account: AccountId, tables: Tables): RunRequest {
  const known = listRuns(tables, account);
  const runId = known.length > 0 && random.isHit(0.95) ? random.of(known).runId : "never-was";
  const failed = listFailedRuns(tables, account);
  const dlqId = failed.length > 0 ? random.of(failed) : "never-was";
  const what = failed.length > 0 && random.isHit(0.25) ? 1 : random.next();
  if (what < 0.4) {
    const runId = random.isHit(0.4) ? random.of(reusedRunIds) : `once-${random.integerBetween(1, 1e9)}`;
    const one = makeStartInput(random, {
      runId,
      url: workflowUrl(random.integerBetween(1, 40)),
      invoker: null,
    });
    return { name: "publish", input: { account, inputs: random.isHit(0.1) ? [one, one] : [one] } };
  }
  if (what < 0.65) return { name: "notify", input: randomNotify(random, { account, runId, tables }) };
  if (what < 0.77) return { name: "cancelRuns", input: { account, runIds: [runId, "never-was", runId] } };
  if (what < 0.82) return { name: "repeatFailureCallback", input: { account, dlqId } };
  const overrides = randomRunOverrides(random);
  const from = random.of(["failure", "failure", "beginning"] as const);
  return { name: "resumeRun", input: { account, dlqId, from, overrides, logRetention: 3_600_000 } };
}

/** Returns the last runs of an account. */
export const listRuns = ({ runs }: Tables, account: AccountId): Run[] => inOrder(runs, account).slice(-8);

/** Returns the dead letters of the last failed runs of an account. */
export const listFailedRuns = ({ deadLetters }: Tables, account: AccountId): string[] =>
  inOrder(deadLetters, account)
    .flatMap((one) => (one.run ? [one.id] : []))
    .slice(-6);

/** Returns the settings that a resumed run replaces. */
export const randomRunOverrides = (random: RandomSource): RunOverrides =>
  random.of([{}, {}, { retries: 1 }, { delay: 2_000 }, { runId: random.of(reusedRunIds) }]);

/** Sorts rows, because stores keep them in different orders. */
export const inOrder = <Row extends { account: string; id: string }>(
  rows: ReadonlyMap<string, Row>,
  account: AccountId,
): Row[] =>
  [...rows.values()].filter((row) => row.account === account).sort((a, b) => (a.id < b.id ? -1 : 1));

/** Returns an event whose body is unique. */
function randomNotify(
  random: RandomSource,
  of: { account: AccountId; runId: string; tables: Tables },
): CommandInput<"notify"> {
  const { account, runId, tables } = of;
  const event = random.of(events);
  const body = new TextEncoder().encode(`${event} ${runId} ${random.integerBetween(1, 1e9)}`);
  const waiting = inOrder(tables.waiters, account).filter((one) => one.event === event);
  if (waiting.length > 0 && random.isHit(0.4))
    return { account, event, body, waiterIds: waiting.slice(0, 5).map(({ id }) => id) };
  return { account, event, body, runId, kind: random.of(["event", "event", "webhook"]) };
}
