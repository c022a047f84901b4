import { z } from "zod";
import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { RunFeatures } from "../../core/model/message.ts";
import { readBoolean, parseKey, readUrl, refuseText } from "./table.ts";
import { shorten } from "../http/target.ts";

/** What a message says of the workflow run that it belongs to, read. Keys are the plain names of the settings. */
export type WorkflowValues = {
  "workflow-runid": string;
  "workflow-init": boolean;
  "workflow-url": string;
  "workflow-calltype": CallTypeName;
  "workflow-sdk-version": string;
  "feature-set": RunFeatures;
  "workflow-invoke": boolean;
  "workflow-trigger-by-sdk": boolean;
  "workflow-unknown-sdk": boolean;
};

export type WorkflowSettingName = keyof WorkflowValues;
type CallTypeName = (typeof callTypes)[number];

/** A setting of messages that belong to a workflow run. `forCallbacks`: clients say it of callbacks, too. */
export type WorkflowSettingRow<T> = { about: string; example: string; text: z.ZodType; forCallbacks: boolean; read(text: string): T };

const callTypes = ["step", "toCallback", "fromCallback", "failureCall"] as const;

/**
 * Every setting by which a message belongs to a workflow run. Clients make them; people need the id at most. They stand
 * beside the settings of messages, under both brands.
 */
export const workflowSettingRows: { readonly [N in WorkflowSettingName]: WorkflowSettingRow<WorkflowValues[N]> } = {
  "workflow-runid": {
    about:
      "The id of the workflow run. A run of that id which has not ended is not started again. Clients put the id into paths: a new run may have no white space and none of / \\ ? # % in it, and is not called . or ..",
    example: "wfr_order-1001",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: true,
    read: readRunId,
  },
  "workflow-init": {
    about: "Whether the message starts the run, or goes on with it.",
    example: "true",
    text: z.boolean(),
    forCallbacks: true,
    read: readBoolean,
  },
  "workflow-url": {
    about: "The endpoint of the workflow. Default: where the first message goes.",
    example: "https://example.com/api/workflow",
    text: z.url(),
    forCallbacks: true,
    read: readUrl,
  },
  "workflow-calltype": {
    about: "What the message is to the run: a `step`, which is the default, or with `toCallback` a request to a third party.",
    example: "step",
    text: z.enum(callTypes),
    forCallbacks: true,
    read: (text) =>
      callTypes.find((name) => name.toLowerCase() === text.toLowerCase()) ?? refuseText(text, `is none of ${callTypes.join(", ")}`),
  },
  "workflow-sdk-version": {
    about: "The version of the protocol that the client speaks.",
    example: "1",
    text: z.string().max(32),
    forCallbacks: true,
    read: (text) => (/^[\w.-]{1,32}$/.test(text) ? text : refuseText(text, "is not a version such as 1")),
  },
  "feature-set": {
    about: "What the endpoint can do: `LazyFetch`, `InitialBody`, `WF_DetectTrigger`, `WF_TriggerOnConfig`, separated by commas.",
    example: "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
    text: z.string().max(1_024),
    forCallbacks: true,
    read: readFeatures,
  },
  "workflow-invoke": {
    about: "Whether another run waits for the end of the one that the message starts.",
    example: "true",
    text: z.boolean(),
    forCallbacks: false,
    read: readBoolean,
  },
  "workflow-trigger-by-sdk": {
    about: "Whether the endpoint itself starts its run again, which was started without a client.",
    example: "true",
    text: z.boolean(),
    forCallbacks: false,
    read: readBoolean,
  },
  "workflow-unknown-sdk": {
    about: "Of a trigger: nothing is known of the client at the endpoint, so it is asked to start the run itself.",
    example: "true",
    text: z.boolean(),
    forCallbacks: false,
    read: readBoolean,
  },
};

export const workflowSettingNames = Object.keys(workflowSettingRows) as WorkflowSettingName[];

export const isWorkflowSetting = (name: string): name is WorkflowSettingName => Object.hasOwn(workflowSettingRows, name);

function readRunId(text: string): string {
  if (text.length > limits.nameLength) throw new Refusal("invalid", `${text.length} characters, the limit is ${limits.nameLength}`);
  return parseKey(text);
}

/**
 * Checks the id of a run that is to be made. Clients put it into paths as it is, so an id that a path cannot carry would leave its run
 * without an end. `written`: how the setting was written. Throws `Refusal`.
 */
export function checkNewRunId(runId: string, written = "workflow-runid"): void {
  const [found] = /[\s/\\?#%]/u.exec(runId) ?? [];
  if (found === undefined && runId !== "." && runId !== "..") return;
  const problem = found === undefined ? "is a relative path" : `has ${/\s/u.test(found) ? "white space" : JSON.stringify(found)}`;
  throw new Refusal(
    "invalid",
    `${written.slice(0, 200)}: ${JSON.stringify(shorten(runId))} ${problem}, and clients put the id into paths; leave out white space, / \\ ? # and %, and give neither . nor ..`,
  );
}

/** Features that are not known are those of clients to come. */
function readFeatures(text: string): RunFeatures {
  if (text.length > 1_024) refuseText(text, "is longer than 1024 characters");
  const names = new Set(text.split(",").map((name) => name.trim()));
  return {
    lazyFetch: names.has("LazyFetch"),
    initialBody: names.has("InitialBody"),
    detect: names.has("WF_DetectTrigger"),
    captured: names.has("WF_TriggerOnConfig"),
  };
}
