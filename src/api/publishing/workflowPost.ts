import { z } from "zod";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { Bytes, HeaderList } from "../../engine/core/values/basics.ts";
import type { InvokerPost, RunFeatures, RunPost, StepHead } from "../../engine/core/model/runPost.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import { headerValue } from "../../engine/core/values/headers.ts";
import { parseStepHead, assertStep } from "../../engine/core/model/run.ts";
import { readForwardedHeaders, headersSchema, toHeaderList } from "../settings/forwardedHeaders.ts";
import type { MessageSettings, WorkflowSettings } from "../settings/grammar.ts";
import { listHeaderSettings, assertNoWorkflowSettings } from "../settings/grammar.ts";
import { readFailureCallback } from "../settings/message.ts";
import { readJson } from "../http/json.ts";
import { parseObject } from "../route/readObject.ts";
import { parseSegment } from "../settings/segment.ts";
import { assertUrl } from "../http/target.ts";
import type { WorkflowSettingName } from "../settings/workflow.ts";
import { assertNewRunId, workflowSettingNames } from "../settings/workflow.ts";

/**
 * Adds what a message does in its workflow run (`post`) to the input of the message. An input whose settings
 * name no run is returned unchanged. Throws `Refusal` for a setting that requires a run and has none, or that
 * is not valid for a run.
 */
export function toRunInput(input: MessageInput, settings: MessageSettings): MessageInput {
  const runId = settings.workflow?.values["workflow-runid"];
  if (!settings.workflow || runId === undefined) {
    assertNoWorkflowSettings(settings);
    return input;
  }
  assertRunTarget(input, settings);
  if (input.hideHeaders)
    throw new Refusal(
      "invalid",
      `${shortenSetting(settings.writtenNames["hide-headers"])}: not valid for a workflow run, which needs ` +
        "the headers; remove it",
    );
  assertCallbackRunIds(settings, runId);
  const { values, writtenNames } = settings.workflow;
  if (input.ackTimeout !== undefined && values["workflow-calltype"] !== "toCallback")
    throw new Refusal(
      "invalid",
      `${shortenSetting(settings.writtenNames["ack-timeout"])}: not valid for a call to the endpoint of a ` +
        "workflow run, which posts its steps; remove it",
    );
  assertNoSettings(
    settings.workflow,
    triggerOnlySettings,
    "only valid for POST /v2/trigger/{destination}; remove it",
  );
  if (values["workflow-init"] === undefined)
    throw new Refusal(
      "invalid",
      `${shortenSetting(writtenNames["workflow-runid"])}: ` +
        "requires Workflow-Init; true starts the run, false continues it",
    );
  return values["workflow-init"]
    ? toStartInput(input, settings.workflow, runId)
    : toContinueInput(input, settings.workflow, runId);
}

const triggerOnlySettings: readonly WorkflowSettingName[] = ["workflow-unknown-sdk"];

/** The settings of a workflow run that a publish request can have. */
export const postSettings = workflowSettingNames.filter((name) => !triggerOnlySettings.includes(name));

const legacyFeatures: RunFeatures = { lazyFetch: false, initialBody: false, detect: false, captured: false };

function toStartInput(
  input: MessageInput,
  { values, writtenNames }: WorkflowSettings,
  runId: string,
): MessageInput {
  assertNewRunId(runId, writtenNames["workflow-runid"]);
  if (input.callback)
    throw new Refusal(
      "invalid",
      "callback: not valid for a message that starts a workflow run; use Failure-Callback for a failed run",
    );
  if (values["workflow-calltype"] === "toCallback")
    throw new Refusal(
      "invalid",
      `${shortenSetting(writtenNames["workflow-calltype"])}: ` +
        "a request to a third party cannot start a run; give Workflow-Init: false",
    );
  const invoke = values["workflow-invoke"] ? readInvoke(input, runId) : null;
  const post: RunPost = {
    kind: "start",
    runId,
    url: values["workflow-url"] ?? input.url,
    features: values["feature-set"] ?? legacyFeatures,
    origin: values["workflow-trigger-by-sdk"] ? "again" : "sdk",
    invoker: invoke?.invoker ?? null,
  };
  return { ...input, ...(invoke ? { body: invoke.payload } : {}), post };
}

function toContinueInput(input: MessageInput, workflow: WorkflowSettings, runId: string): MessageInput {
  assertNoSettings(
    workflow,
    ["workflow-invoke", "workflow-trigger-by-sdk"],
    "only valid for a message that starts a run; give Workflow-Init: true",
  );
  if (workflow.values["workflow-calltype"] !== "toCallback") {
    if (input.callback)
      throw new Refusal(
        "invalid",
        "callback: not valid for a step of a workflow run; for a third-party call, give Workflow-CallType: " +
          "toCallback",
      );
    return { ...input, post: makeStepPost(runId, readStepHead(input.body), workflow) };
  }
  if (!input.callback)
    throw new Refusal(
      "invalid",
      "callback: missing; give the URL of the endpoint that receives the third party's response",
    );
  return { ...input, post: { kind: "call", runId, head: readCallStepHead(input.callback.headers) } };
}

const makeStepPost = (runId: string, head: StepHead | null, { values }: WorkflowSettings): RunPost => ({
  ...{ kind: "step", runId, head },
  ...(head && head.concurrent > 1 && values["feature-set"] ? { features: values["feature-set"] } : {}),
  ...(values["workflow-run-on"] ? { runOn: values["workflow-run-on"] } : {}),
});

/**
 * Throws `Refusal` for a message of a run that goes to a URL group or through a queue, or that is
 * deduplicated.
 */
function assertRunTarget(
  { group, queue, deduplication }: MessageInput,
  { values, writtenNames }: MessageSettings,
): void {
  if (group !== null)
    throw new Refusal("invalid", "destination: a workflow run cannot use a URL group; give a URL");
  if (queue !== null)
    throw new Refusal(
      "invalid",
      "queue: a workflow run cannot use a queue; use Flow-Control-Key to limit it",
    );
  if (deduplication === null) return;
  const name = values["deduplication-id"] === undefined ? "content-based-deduplication" : "deduplication-id";
  throw new Refusal(
    "invalid",
    `${shortenSetting(writtenNames[name])}: not valid for a workflow run, whose id prevents duplicates; ` +
      "remove it",
  );
}

/**
 * Throws `Refusal` if a callback names a different run than its message, because a response belongs to the
 * run of the message.
 */
function assertCallbackRunIds({ callback, failureCallback }: MessageSettings, runId: string): void {
  for (const child of [callback, failureCallback]) {
    if (!child) continue;
    const { values, writtenNames } = child.workflow ?? { values: {}, writtenNames: {} };
    if ((values["workflow-runid"] ?? runId) !== runId)
      throw new Refusal(
        "invalid",
        `${shortenSetting(writtenNames["workflow-runid"])}: differs from the run of the message; ` +
          "give the same id",
      );
    assertCallbackRunIds(child, runId);
  }
}

function assertNoSettings(
  { writtenNames }: WorkflowSettings,
  names: readonly WorkflowSettingName[],
  problem: string,
): void {
  for (const name of names)
    if (writtenNames[name] !== undefined)
      throw new Refusal("invalid", `${shortenSetting(writtenNames[name])}: ${problem}`);
}

const shortenSetting = (writtenName = "setting"): string => writtenName.slice(0, 200);

/**
 * Returns the head of the step in a body, or null if the head cannot be read. A body that cannot be read is
 * stored as well, because only the endpoint must understand it.
 */
function readStepHead(body: Bytes): StepHead | null {
  try {
    return parseStepHead(readJson(body));
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

/** Returns the head of a call's step, from the headers that its callback forwards to the endpoint. */
function readCallStepHead(forwarded: HeaderList): StepHead | null {
  const value = (name: string): string | undefined =>
    headerValue(forwarded, `Upstash-${name}`) ?? headerValue(forwarded, `Svc-${name}`);
  const readNumber = (name: string): number | undefined =>
    /^\d{1,7}$/.test(value(name) ?? "") ? Number(value(name)) : undefined;
  return parseStepHead({
    stepId: readNumber("Workflow-Stepid"),
    stepName: value("Workflow-Stepname"),
    stepType: value("Workflow-Steptype"),
    concurrent: readNumber("Workflow-Concurrent"),
  });
}

/**
 * The maximum length of the step of an invocation, in characters of JSON. Until its result arrives,
 * the step is stored more than once, for example with the invoked run and with the waiter.
 */
const longestStep = 16 * 1024;
/** The maximum number of names in the JSON of an invocation. The limit of its headers is lower. */
const maxNames = 20_000;
const textMissing = "is missing or not a string";

const invokeSchema = z.object({
  body: z.string("is not a string").optional(),
  headers: headersSchema.default({}),
  workflowRunId: z.string(textMissing),
  workflowRunCreatedAt: z.int("is not a Unix time in milliseconds").min(0).default(0),
  workflowUrl: z.string(textMissing),
  step: z.record(z.string(), z.unknown(), "is missing or not a JSON object"),
});

/**
 * Reads the body with which a run invokes another run: the payload, and the step that waits.
 */
function readInvoke(
  { body, headers }: MessageInput,
  invokedRun: string,
): { payload: Bytes; invoker: InvokerPost } {
  assertInvokeDepth(headers);
  const invocation = parseObject(invokeSchema, readJson(body, { names: maxNames }), "body");
  const { workflowRunId, workflowRunCreatedAt: createdAt, workflowUrl, step } = invocation;
  if (JSON.stringify(step).length > longestStep)
    throw new Refusal(
      "invalid",
      `body.step: longer than ${longestStep} characters; give the payload as body.body`,
    );
  assertStep(step);
  assertUrl("body.workflowUrl", workflowUrl);
  const posted = toHeaderList(invocation.headers);
  const runId = parseSegment(
    "body.workflowRunId",
    // In version 0.2.9 of the client, this is the invoked run. The headers then name the invoking run.
    (workflowRunId === invokedRun && findRunId(posted)) || workflowRunId,
  );
  const sentWith = readForwardedHeaders("body.headers", posted);
  const failureCallback = readFailureCallback(listHeaderSettings(posted.flat()));
  return {
    payload: Buffer.from(invocation.body ?? ""),
    invoker: {
      runId,
      createdAt,
      url: workflowUrl,
      headers: sentWith,
      step,
      ...(failureCallback && { failureCallback }),
    },
  };
}

const findRunId = (headers: HeaderList): string | undefined =>
  headers.find(([name]) => /^(svc|upstash)-workflow-runid$/i.test(name))?.[1];

/**
 * Throws `Refusal` if invocations nest runs more deeply than `limits.invokeDepth`. The client counts the runs
 * above the new run and forwards the number in a header.
 */
function assertInvokeDepth(headers: HeaderList): void {
  const count = headers.find(([name]) => /^(svc|upstash)-workflow-invoke-count$/i.test(name))?.[1] ?? "0";
  if (!/^\d{1,9}$/.test(count)) throw new Refusal("invalid", "workflow-invoke-count: is not a whole number");
  if (Number(count) < limits.invokeDepth) return;
  throw new Refusal(
    "limit-exceeded",
    `workflow-invoke-count: runs are nested ${count} deep by invocations, the limit is ${limits.invokeDepth}`,
  );
}
