import { brandNames } from "../../core/values/brand.ts";
import { Refusal } from "../../core/values/errors.ts";
import type { CallbackSettings, HeaderList, MessageInput, RunFeatures } from "../../core/model/message.ts";
import { toLatin1, joinHeaders } from "../../core/values/headers.ts";
import { readForwardedHeader } from "../settings/forward.ts";
import type { GivenSetting, MessageSettings } from "../settings/grammar.ts";
import { refuseWorkflowSettings } from "../settings/grammar.ts";
import { toRunInput } from "./workflowPost.ts";
import type { WorkflowValues } from "../settings/workflow.ts";

/**
 * The start of a workflow run that was asked for without a client: this server says what the client would have said
 * (protocol 6.4.3). Throws `Refusal`.
 */
export function toTriggerInput(input: MessageInput, settings: MessageSettings): MessageInput {
  const { "workflow-runid": runId, "workflow-unknown-sdk": unknown = false } = readTriggerSettings(settings);
  const values = { "workflow-runid": runId ?? placeholderRunId, "workflow-init": true, "feature-set": modernFeatures };
  const { "workflow-runid": runIdAsWritten } = settings.workflow?.written ?? {};
  const written = runIdAsWritten === undefined ? {} : { "workflow-runid": runIdAsWritten };
  const { post, ...started } = toRunInput(input, { ...settings, workflow: { values, written } });
  if (post?.kind !== "start") throw new Error("trigger: a letter starts no run");
  const triggerHeaders = makeTriggerHeaders(input, unknown);
  return {
    ...started,
    headers: joinHeaders([["Content-Type", "application/json"]], joinHeaders(input.headers, triggerHeaders.delivered)),
    failureCallback: input.failureCallback && makeFailureCallback(input, input.failureCallback, triggerHeaders.failed),
    post: { ...post, runId: runId ?? "", origin: "rest" },
  };
}

/** Those of a run that a trigger can have; all others are what it says itself. */
export const triggerSettings = ["workflow-runid", "workflow-unknown-sdk"] as const;

/** What is said of the run. Throws `Refusal` for what a client says. */
function readTriggerSettings({ workflow, callback, failureCallback }: MessageSettings): Partial<WorkflowValues> {
  for (const [name, written] of Object.entries(workflow?.written ?? {}))
    if (!triggerSettings.some((one) => one === name))
      throw new Refusal("invalid", `${written.slice(0, 200)}: a trigger says that by itself; leave it out`);
  for (const child of [callback, failureCallback]) if (child) refuseWorkflowSettings(child);
  return workflow?.values ?? {};
}

const modernFeatures: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };

/** Stands for the id that the run is given when it starts. */
const placeholderRunId = "-";

/** An endpoint has a function for its own failures, so it is told of them unless something else is. */
export const triggerLayers = (layers: readonly (readonly GivenSetting[])[], destination: string): (readonly GivenSetting[])[] => [
  ...layers.map((given) => given.filter(({ name, value }) => name !== "failure-callback" || value !== "")),
  [{ brand: "svc", name: "failure-callback", value: destination, written: "Failure-Callback" }],
];

function makeTriggerHeaders({ brand, labels }: MessageInput, unknown: boolean): { delivered: HeaderList; failed: HeaderList } {
  const own = (name: string, value = "true"): readonly [string, string] => [`${brandNames[brand].prefix}-${name}`, value];
  const [name] = own("Label");
  const label = labels.length === 0 ? null : readForwardedHeader("label", name, toLatin1(labels.join(",")));
  const labelled = label ? [label] : [];
  return {
    delivered: [own("Workflow-Sdk-Version", "1"), ...(unknown ? [own("Workflow-Unknown-Sdk")] : []), ...labelled],
    failed: [own("Workflow-Is-Failure"), own("Workflow-Failure-Callback"), ...labelled],
  };
}

/** Told of a failure with the headers of the run, and under its policy, as far as it has none of its own. */
function makeFailureCallback(
  { headers, retryDelay, flowControl }: MessageInput,
  failureCallback: CallbackSettings,
  own: HeaderList,
): CallbackSettings {
  const userHeaders = headers.filter(([name]) => !name.startsWith("Content-"));
  return {
    ...failureCallback,
    retryDelay: failureCallback.retryDelay ?? retryDelay,
    flowControl: failureCallback.flowControl ?? flowControl,
    headers: joinHeaders(joinHeaders(userHeaders, failureCallback.headers), own),
  };
}
