import { brandNames } from "../../engine/core/values/brand.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { CallbackSettings } from "../../engine/core/model/sendSettings.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { RunFeatures } from "../../engine/core/model/runPost.ts";
import { toLatin1, joinHeaders } from "../../engine/core/values/headers.ts";
import { readForwardedHeader } from "../settings/forward.ts";
import type { RawSetting } from "../settings/rawSetting.ts";
import type { MessageSettings } from "../settings/grammar.ts";
import { assertNoWorkflowSettings } from "../settings/grammar.ts";
import { toRunInput } from "./workflowPost.ts";
import type { WorkflowValues } from "../settings/workflow.ts";

/**
 * Returns the input that starts a workflow run which was triggered without a client library. The server adds
 * the settings that the client library would have sent. Throws `Refusal`.
 */
export function toTriggerInput(input: MessageInput, settings: MessageSettings): MessageInput {
  const { "workflow-runid": runId, "workflow-unknown-sdk": unknown = false } = readTriggerSettings(settings);
  const values = {
    "workflow-runid": runId ?? placeholderRunId,
    "workflow-init": true,
    "feature-set": modernFeatures,
  };
  const { "workflow-runid": runIdAsWritten } = settings.workflow?.writtenNames ?? {};
  const writtenNames = runIdAsWritten === undefined ? {} : { "workflow-runid": runIdAsWritten };
  const { post, ...started } = toRunInput(input, { ...settings, workflow: { values, writtenNames } });
  if (post?.kind !== "start") throw new Error("trigger: the message starts no run");
  const triggerHeaders = makeTriggerHeaders(input, unknown);
  return {
    ...started,
    headers: joinHeaders(
      [["Content-Type", "application/json"]],
      joinHeaders(input.headers, triggerHeaders.delivered),
    ),
    failureCallback:
      input.failureCallback && makeFailureCallback(input, input.failureCallback, triggerHeaders.failed),
    post: { ...post, runId: runId ?? "", origin: "rest" },
  };
}

/**
 * The settings of a workflow run that a caller may give with a trigger. The trigger sets all other settings
 * of a run.
 */
export const triggerSettings = ["workflow-runid", "workflow-unknown-sdk"] as const;

/** Returns the settings of the run. Throws `Refusal` for settings that only client libraries set. */
function readTriggerSettings({
  workflow,
  callback,
  failureCallback,
}: MessageSettings): Partial<WorkflowValues> {
  for (const [name, writtenName] of Object.entries(workflow?.writtenNames ?? {}))
    if (!triggerSettings.some((one) => one === name))
      throw new Refusal("invalid", `${writtenName.slice(0, 200)}: set by the trigger itself; remove it`);
  for (const child of [callback, failureCallback]) if (child) assertNoWorkflowSettings(child);
  return workflow?.values ?? {};
}

const modernFeatures: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };

/** Placeholder for the id of a run. A run that is triggered without an id receives one when it starts. */
const placeholderRunId = "-";

/**
 * Adds a default failure callback to layers of settings. The default is the endpoint itself, because the code
 * of a workflow handles its own failures there. An empty `failure-callback` counts as not given.
 */
export const triggerLayers = (
  layers: readonly (readonly RawSetting[])[],
  destination: string,
): (readonly RawSetting[])[] => [
  ...layers.map((layer) => layer.filter(({ name, value }) => name !== "failure-callback" || value !== "")),
  [{ brand: "svc", name: "failure-callback", value: destination, writtenName: "Failure-Callback" }],
];

function makeTriggerHeaders(
  { brand, labels }: MessageInput,
  unknown: boolean,
): { delivered: HeaderList; failed: HeaderList } {
  const own = (name: string, value = "true"): readonly [string, string] => [
    `${brandNames[brand].prefix}-${name}`,
    value,
  ];
  const [name] = own("Label");
  const label = labels.length === 0 ? null : readForwardedHeader("label", name, toLatin1(labels.join(",")));
  const labelled = label ? [label] : [];
  return {
    delivered: [
      own("Workflow-Sdk-Version", "1"),
      ...(unknown ? [own("Workflow-Unknown-Sdk")] : []),
      ...labelled,
    ],
    failed: [own("Workflow-Is-Failure"), own("Workflow-Failure-Callback"), ...labelled],
  };
}

/**
 * Returns the failure callback with the headers of the run. If the failure callback has no retry delay or no
 * flow control, it takes those of the run.
 */
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
