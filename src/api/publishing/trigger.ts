import { brandNames } from "../../core/values/brand.ts";
import { Refusal } from "../../core/values/errors.ts";
import type { CallbackSettings, HeaderList, Letter, RunFeatures } from "../../core/model/message.ts";
import { inLatin, joinHeaders } from "../../core/values/headers.ts";
import { forwardedHeader } from "../settings/forward.ts";
import type { Given, Settings } from "../settings/grammar.ts";
import { refuseOfWorkflows } from "../settings/grammar.ts";
import { postedForRun } from "./workflowPost.ts";
import type { WorkflowValues } from "../settings/workflow.ts";

/**
 * The start of a workflow run that was asked for without a client: this server says what the client would have said
 * (protocol 6.4.3). Throws `Refusal`.
 */
export function triggered(letter: Letter, settings: Settings): Letter {
  const { "workflow-runid": runId, "workflow-unknown-sdk": unknown = false } = ownOf(settings);
  const values = { "workflow-runid": runId ?? unnamed, "workflow-init": true, "feature-set": modern };
  const { "workflow-runid": runIdAsWritten } = settings.workflow?.written ?? {};
  const written = runIdAsWritten === undefined ? {} : { "workflow-runid": runIdAsWritten };
  const { post, ...started } = postedForRun(letter, { ...settings, workflow: { values, written } });
  if (post?.kind !== "start") throw new Error("trigger: a letter starts no run");
  const own = headersOf(letter, unknown);
  return {
    ...started,
    headers: joinHeaders([["Content-Type", "application/json"]], joinHeaders(letter.headers, own.delivered)),
    failureCallback: letter.failureCallback && failureCallbackOf(letter, letter.failureCallback, own.failed),
    post: { ...post, runId: runId ?? "", origin: "rest" },
  };
}

/** Those of a run that a trigger can have; all others are what it says itself. */
export const settingsOfTriggers = ["workflow-runid", "workflow-unknown-sdk"] as const;

/** What is said of the run. Throws `Refusal` for what a client says. */
function ownOf({ workflow, callback, failureCallback }: Settings): Partial<WorkflowValues> {
  for (const [name, written] of Object.entries(workflow?.written ?? {}))
    if (!settingsOfTriggers.some((one) => one === name))
      throw new Refusal("invalid", `${written.slice(0, 200)}: a trigger says that by itself; leave it out`);
  for (const child of [callback, failureCallback]) if (child) refuseOfWorkflows(child);
  return workflow?.values ?? {};
}

const modern: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };

/** Stands for the id that the run is given when it starts. */
const unnamed = "-";

/** An endpoint has a function for its own failures, so it is told of them unless something else is. */
export const triggerLayers = (layers: readonly (readonly Given[])[], destination: string): (readonly Given[])[] => [
  ...layers.map((given) => given.filter(({ name, value }) => name !== "failure-callback" || value !== "")),
  [{ brand: "svc", name: "failure-callback", value: destination, written: "Failure-Callback" }],
];

function headersOf({ brand, labels }: Letter, unknown: boolean): { delivered: HeaderList; failed: HeaderList } {
  const own = (name: string, value = "true"): readonly [string, string] => [`${brandNames[brand].prefix}-${name}`, value];
  const [name] = own("Label");
  const label = labels.length === 0 ? null : forwardedHeader("label", name, inLatin(labels.join(",")));
  const labelled = label ? [label] : [];
  return {
    delivered: [own("Workflow-Sdk-Version", "1"), ...(unknown ? [own("Workflow-Unknown-Sdk")] : []), ...labelled],
    failed: [own("Workflow-Is-Failure"), own("Workflow-Failure-Callback"), ...labelled],
  };
}

/** Told of a failure with the headers of the run, and under its policy, as far as it has none of its own. */
function failureCallbackOf({ headers, retryDelay, flowControl }: Letter, to: CallbackSettings, own: HeaderList): CallbackSettings {
  const users = headers.filter(([name]) => !name.startsWith("Content-"));
  return {
    ...{ ...to, retryDelay: to.retryDelay ?? retryDelay, flowControl: to.flowControl ?? flowControl },
    headers: joinHeaders(joinHeaders(users, to.headers), own),
  };
}
