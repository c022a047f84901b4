import { z } from "zod";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { RunFeatures, RunOnRequest } from "../../engine/core/model/runPost.ts";
import { readBoolean, parseKey, readUrl, refuseText } from "./settingTexts.ts";
import { shorten } from "../http/target.ts";

/** The values of the settings of a workflow run. Keys are the names of the settings, without a prefix. */
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
  "workflow-run-on": RunOnRequest;
};

/** The name of a setting of a workflow run, without a prefix. */
export type WorkflowSettingName = keyof WorkflowValues;
type CallTypeName = (typeof callTypes)[number];

/**
 * The description of a setting of messages that belong to a workflow run. `forCallbacks`: it is also accepted
 * for callbacks, because clients send it. `read` throws `Refusal`.
 */
export type WorkflowSettingRow<T> = {
  about: string;
  example: string;
  text: z.ZodType;
  forCallbacks: boolean;
  read(text: string): T;
};

const callTypes = ["step", "toCallback", "fromCallback", "failureCall"] as const;

/**
 * Every setting by which a message belongs to a workflow run. Client libraries set them; a user needs at most
 * the id. Like the settings of messages, they exist under both brands.
 */
export const workflowSettingRows: {
  readonly [N in WorkflowSettingName]: WorkflowSettingRow<WorkflowValues[N]>;
} = {
  "workflow-runid": {
    about:
      `Id of the workflow run: 1 to ${limits.nameLength} characters. An active run with this id is not ` +
      "started again. Clients put the id into paths. The id of a new run must therefore not contain white " +
      "space or any of / \\ ? # %, and must not be . or ..",
    example: "wfr_order-1001",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: true,
    read: readRunId,
  },
  "workflow-init": {
    about: "`true`: the message starts the run. `false`: the message continues the run.",
    example: "true",
    text: z.boolean(),
    forCallbacks: true,
    read: readBoolean,
  },
  "workflow-url": {
    about: "URL of the workflow's endpoint. Default: the destination of the message that starts the run.",
    example: "https://example.com/api/workflow",
    text: z.url(),
    forCallbacks: true,
    read: readUrl,
  },
  "workflow-calltype": {
    about:
      "Role of the message in the run. `step`: a step (default). `toCallback`: a request to a third party. " +
      "`fromCallback`, `failureCall`: accepted from clients and treated like `step`.",
    example: "step",
    text: z.enum(callTypes),
    forCallbacks: true,
    read: (text) =>
      callTypes.find((name) => name.toLowerCase() === text.toLowerCase()) ??
      refuseText(text, `must be one of ${callTypes.join(", ")}`),
  },
  "workflow-sdk-version": {
    about: "Version of the protocol that the client uses: 1 to 32 letters, digits, `.`, `_` or `-`.",
    example: "1",
    text: z.string().max(32),
    forCallbacks: true,
    read: (text) => (/^[\w.-]{1,32}$/.test(text) ? text : refuseText(text, "is not a version such as 1")),
  },
  "feature-set": {
    about:
      "Features of the endpoint, separated by commas: " +
      "`LazyFetch`, `InitialBody`, `WF_DetectTrigger`, `WF_TriggerOnConfig`. Unknown features are ignored. " +
      "At most 1024 characters.",
    example: "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
    text: z.string().max(1_024),
    forCallbacks: true,
    read: readFeatures,
  },
  "workflow-invoke": {
    about: "`true`: another run waits for the end of the run that this message starts. Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: false,
    read: readBoolean,
  },
  "workflow-trigger-by-sdk": {
    about:
      "`true`: the endpoint itself starts its run again, because the run was started without a client. " +
      "Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: false,
    read: readBoolean,
  },
  "workflow-unknown-sdk": {
    about:
      "For a trigger, `true`: the endpoint's client library is unknown, so the endpoint is asked to start " +
      "the run itself. Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: false,
    read: readBoolean,
  },
  "workflow-run-on": {
    about:
      "For a step, the call in which it is posted, if the endpoint can continue with the next step in the " +
      "same call: the id of the message, its attempt (Retried), and an id of 1 to 64 letters, digits, _ " +
      "and - that the endpoint has made for the call, separated by periods.",
    example: "msg_7YoJxFpwk.0.k3J9fQ",
    text: z.string().max(180),
    forCallbacks: false,
    read: readRunOn,
  },
};

/** Returns the call in which a step is posted, or null if the text is not one. */
export function parseRunOn(text: string): RunOnRequest | null {
  const [, messageId, attempt, call] = /^([\w-]{1,100})\.(\d{1,7})\.([\w-]{1,64})$/.exec(text) ?? [];
  return messageId === undefined || call === undefined ? null : { messageId, attempt: Number(attempt), call };
}

/** The rule that `parseRunOn` checks. */
export const runOnRule = "must be a message id, an attempt and an id of the call, separated by periods";

function readRunOn(text: string): RunOnRequest {
  return parseRunOn(text) ?? refuseText(text, runOnRule);
}

/** The names of all settings of a workflow run. */
export const workflowSettingNames = Object.keys(workflowSettingRows) as WorkflowSettingName[];

/** Reports whether a name is that of a setting of a workflow run. */
export const isWorkflowSetting = (name: string): name is WorkflowSettingName =>
  Object.hasOwn(workflowSettingRows, name);

function readRunId(text: string): string {
  if (text.length > limits.nameLength)
    throw new Refusal("invalid", `${text.length} characters, the limit is ${limits.nameLength}`);
  return parseKey(text);
}

/**
 * Checks the id of a new run. Throws `Refusal` for an id that a path cannot contain: clients put the id into
 * paths unencoded, so such a run could never end. `writtenName`: the name of the setting as the caller wrote
 * it.
 */
export function assertNewRunId(runId: string, writtenName = "workflow-runid"): void {
  const [found] = /[\s/\\?#%]/u.exec(runId) ?? [];
  if (found === undefined && runId !== "." && runId !== "..") return;
  const problem =
    found === undefined
      ? "is a relative path"
      : `contains ${/\s/u.test(found) ? "white space" : JSON.stringify(found)}`;
  const allowed = "use an id without white space and / \\ ? # %, other than . and ..";
  throw new Refusal(
    "invalid",
    `${writtenName.slice(0, 200)}: ${JSON.stringify(shorten(runId))} ${problem}; ${allowed}`,
  );
}

/** Reads a list of features. Unknown features are ignored, because newer clients may send them. */
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
