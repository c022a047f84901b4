import { z } from "zod";
import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { Bytes, HeaderList, InvokerPost, MessageInput, RunFeatures, RunPost, StepHead } from "../../core/model/message.ts";
import { headerValue } from "../../core/values/headers.ts";
import { parseStepHead, mustBeStep } from "../../core/model/run.ts";
import { readForwardedHeaders, headersSchema, toHeaderList } from "../settings/forwardedHeaders.ts";
import type { MessageSettings, WorkflowSettings } from "../settings/grammar.ts";
import { refuseWorkflowSettings } from "../settings/grammar.ts";
import { readJson } from "../http/json.ts";
import { parseObject } from "../route/readObject.ts";
import { checkSegment } from "../settings/segment.ts";
import { checkUrl } from "../http/target.ts";
import type { WorkflowSettingName } from "../settings/workflow.ts";
import { checkNewRunId, workflowSettingNames } from "../settings/workflow.ts";

/**
 * What a letter is to a workflow run, of one that has the id of a run; any other is left as it is. Throws `Refusal` for
 * what is said of a run and means nothing, or cannot be done for one.
 */
export function toRunInput(input: MessageInput, settings: MessageSettings): MessageInput {
  const runId = settings.workflow?.values["workflow-runid"];
  if (!settings.workflow || runId === undefined) {
    refuseWorkflowSettings(settings);
    return input;
  }
  checkRunTarget(input, settings);
  checkCallbackRunIds(settings, runId);
  const { values, written } = settings.workflow;
  refuseSettings(settings.workflow, triggerOnlySettings, "belongs to POST /v2/trigger/{destination}; leave it out");
  if (values["workflow-init"] === undefined)
    throw new Refusal(
      "invalid",
      `${shortenSetting(written["workflow-runid"])}: there is no Workflow-Init beside it; true starts the run, false goes on with it`,
    );
  return values["workflow-init"] ? toStartInput(input, settings.workflow, runId) : toContinueInput(input, settings.workflow, runId);
}

const triggerOnlySettings: readonly WorkflowSettingName[] = ["workflow-unknown-sdk"];

/** Those of a run that a message can have. */
export const postSettings = workflowSettingNames.filter((name) => !triggerOnlySettings.includes(name));

const legacyFeatures: RunFeatures = { lazyFetch: false, initialBody: false, detect: false, captured: false };

function toStartInput(input: MessageInput, { values, written }: WorkflowSettings, runId: string): MessageInput {
  checkNewRunId(runId, written["workflow-runid"]);
  if (input.callback)
    throw new Refusal(
      "invalid",
      "callback: a message that starts a workflow run has none; Failure-Callback is told when the run has failed",
    );
  if (values["workflow-calltype"] === "toCallback")
    throw new Refusal(
      "invalid",
      `${shortenSetting(written["workflow-calltype"])}: a request to a third party starts no run; give Workflow-Init: false`,
    );
  const invoke = values["workflow-invoke"] ? readInvoke(input) : null;
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
  refuseSettings(
    workflow,
    ["workflow-invoke", "workflow-trigger-by-sdk"],
    "is said of a message that starts a run; give Workflow-Init: true",
  );
  if (workflow.values["workflow-calltype"] !== "toCallback") {
    if (input.callback)
      throw new Refusal("invalid", "callback: a step of a workflow run has none; with Workflow-CallType: toCallback the answer is a step");
    return { ...input, post: { kind: "step", runId, head: readStepHead(input.body) } };
  }
  if (!input.callback) throw new Refusal("invalid", "callback: missing; give the endpoint that is told what the third party has answered");
  return { ...input, post: { kind: "call", runId, head: readCallStepHead(input.callback.headers) } };
}

/** A run goes to one URL, by no queue, and is known by its id. */
function checkRunTarget({ group, queue, deduplication }: MessageInput, { values, written }: MessageSettings): void {
  if (group !== null) throw new Refusal("invalid", "destination: a workflow run goes to a URL, and to no URL group");
  if (queue !== null) throw new Refusal("invalid", "queue: a workflow run goes through no queue; give it a Flow-Control-Key to limit it");
  if (deduplication === null) return;
  const name = values["deduplication-id"] === undefined ? "content-based-deduplication" : "deduplication-id";
  throw new Refusal("invalid", `${shortenSetting(written[name])}: a workflow run is deduplicated by its id, Workflow-RunId; leave it out`);
}

/** What is said of a run with a callback is about the same run: the answer to its message goes nowhere else. */
function checkCallbackRunIds({ callback, failureCallback }: MessageSettings, runId: string): void {
  for (const child of [callback, failureCallback]) {
    if (!child) continue;
    const { values, written } = child.workflow ?? { values: {}, written: {} };
    if ((values["workflow-runid"] ?? runId) !== runId)
      throw new Refusal(
        "invalid",
        `${shortenSetting(written["workflow-runid"])}: is another run than that of the message; give the same id`,
      );
    checkCallbackRunIds(child, runId);
  }
}

function refuseSettings({ written }: WorkflowSettings, names: readonly WorkflowSettingName[], problem: string): void {
  for (const name of names) if (written[name] !== undefined) throw new Refusal("invalid", `${shortenSetting(written[name])}: ${problem}`);
}

const shortenSetting = (written = "setting"): string => written.slice(0, 200);

/** The step in a body. Null where none can be read: it is kept all the same, because it is the endpoint that must understand it. */
function readStepHead(body: Bytes): StepHead | null {
  try {
    return parseStepHead(readJson(body));
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

/** The step of a call is told by what its callback is to forward to the endpoint. */
function readCallStepHead(forwarded: HeaderList): StepHead | null {
  const value = (name: string): string | undefined => headerValue(forwarded, `Upstash-${name}`) ?? headerValue(forwarded, `Svc-${name}`);
  const readNumber = (name: string): number | undefined => (/^\d{1,7}$/.test(value(name) ?? "") ? Number(value(name)) : undefined);
  return parseStepHead({
    stepId: readNumber("Workflow-Stepid"),
    stepName: value("Workflow-Stepname"),
    stepType: value("Workflow-Steptype"),
    concurrent: readNumber("Workflow-Concurrent"),
  });
}

/** The step that waits for another run comes back with its result, and is kept in three places: longer than this is no step. */
const longestStep = 16 * 1024;
/** In the body of such a request, more than the headers of any could be. */
const maxNames = 20_000;
const textMissing = "is missing, or not a text";

const invokeSchema = z.object({
  body: z.string("is not a text").optional(),
  headers: headersSchema.default({}),
  workflowRunId: z.string(textMissing),
  workflowRunCreatedAt: z.int("is not a unix time in milliseconds").min(0).default(0),
  workflowUrl: z.string(textMissing),
  step: z.record(z.string(), z.unknown(), "is missing, or not a JSON object"),
});

/** What a run that invokes another one posts: the payload of that, and the step that waits for its end (protocol 6.12). */
function readInvoke({ body, headers }: MessageInput): { payload: Bytes; invoker: InvokerPost } {
  checkInvokeDepth(headers);
  const given = parseObject(invokeSchema, readJson(body, { names: maxNames }), "body");
  const { workflowRunId, workflowRunCreatedAt: createdAt, workflowUrl, step } = given;
  if (JSON.stringify(step).length > longestStep)
    throw new Refusal("invalid", `body.step: longer than ${longestStep} characters; give the payload as body.body`);
  mustBeStep(step);
  checkUrl("body.workflowUrl", workflowUrl);
  const runId = checkSegment("body.workflowRunId", workflowRunId);
  const sentWith = readForwardedHeaders("body.headers", toHeaderList(given.headers));
  return { payload: Buffer.from(given.body ?? ""), invoker: { runId, createdAt, url: workflowUrl, headers: sentWith, step } };
}

/** Runs that invoke runs come to an end. The client counts: it forwards how many stand above the new one. */
function checkInvokeDepth(headers: HeaderList): void {
  const count = headers.find(([name]) => /^(svc|upstash)-workflow-invoke-count$/i.test(name))?.[1] ?? "0";
  if (!/^\d{1,9}$/.test(count)) throw new Refusal("invalid", "workflow-invoke-count: is not a whole number");
  if (Number(count) < limits.invokeDepth) return;
  throw new Refusal("limit-exceeded", `workflow-invoke-count: ${count} runs invoke each other, the limit is ${limits.invokeDepth}`);
}
