import type { HeaderList, Millis } from "../values/basics.ts";
import type { CallbackSettings } from "./sendSettings.ts";

/**
 * The internal key of a workflow run. Callers know a run by its run id, which several runs may have one after
 * another.
 */
export type RunKey = string;

/**
 * A step as its endpoint names it. If `stepId` is 0, the step is a plan of the step `targetStep`. Other
 * members of the step stay in the body.
 */
export type StepHead = {
  stepId: number;
  stepName: string;
  stepType: string;
  concurrent: number;
  targetStep?: number;
};

/**
 * The meaning of a posted message for a workflow.
 * - `start`: its body is the initial payload, and its settings apply to all messages of the run. If `runId`
 *   is empty, a new one is created.
 * - `step`: its body is appended to the history.
 * - `call`: it is a request to a third party, whose response becomes a step.
 */
export type RunPost =
  | {
      kind: "start";
      runId: string;
      url: string;
      features: RunFeatures;
      origin: RunOrigin;
      invoker: InvokerPost | null;
    }
  | {
      kind: "step" | "call";
      runId: string;
      head: StepHead | null;
      /** For the result of a parallel step, the features of the client that posted it. */
      features?: RunFeatures;
      runOn?: RunOnRequest;
    };

/**
 * The call in which an endpoint posts a step, if the endpoint can continue in it: the attempt of a message,
 * and an id that the endpoint has made. Two requests of one attempt have different ids.
 */
export type RunOnRequest = { messageId: string; attempt: number; call: string };

/**
 * Where a start comes from. `sdk`: a client posted it. `again`: the endpoint posted it for a run that is
 * already active. `rest`: it was requested without a client.
 */
export type RunOrigin = "sdk" | "again" | "rest";

/**
 * The features of the client at a run's endpoint, as the start of the run reports them. They are stored with
 * the run under these names.
 */
export type RunFeatures = {
  /** The endpoint can fetch a large history itself. */
  lazyFetch: boolean;
  /** Failure callbacks report the initial payload instead of the whole history. */
  initialBody: boolean;
  /** The first response must show that it comes from a workflow. */
  detect: boolean;
  /** The settings of the start apply to all messages of the run. */
  captured: boolean;
};

/**
 * Clients that do not receive calls which they would discard: `older` are clients before version 1, and `all`
 * are also those of version 1 and later.
 */
export type ClientChoice = "none" | "older" | "all";

/** The step of another run that waits for the end of this run, and how the result is sent to it. */
export type InvokerPost = {
  runId: string;
  createdAt: Millis;
  url: string;
  headers: HeaderList;
  /** The failure callback of the other run, if the call that continues it fails. Absent: its own. */
  failureCallback?: CallbackSettings;
  step: Readonly<Record<string, unknown>>;
};

/**
 * The role of a message in its run. A `step` carries the history up to itself. A `call` is a request to a
 * third party, and a `result` carries its response. A `failure` is the failure callback of the run.
 */
export type RunPart = {
  run: RunKey;
  runId: string;
  createdAt: Millis;
  kind: "step" | "call" | "result" | "failure";
  /** The key of its step, and the position of that step in the history. */
  stepKey: string;
  position: number;
  /**
   * The number of bytes that are sent. The body is made of the history, so this is 0 if the endpoint fetches
   * the history itself.
   */
  size: number;
  /**
   * The first response is checked. `detect`: it must come from a workflow. `rest`: it must come from a
   * workflow that can be triggered without a client.
   */
  first?: "detect" | "rest";
};
