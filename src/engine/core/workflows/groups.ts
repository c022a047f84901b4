import type { Moment } from "../decision/command.ts";
import type { MessageInput } from "../model/message.ts";
import type { RunFeatures, RunPost, StepHead } from "../model/runPost.ts";
import type { ActiveRun, CallType } from "../model/run.ts";

// The endpoint continues after a parallel group only in the call with all results of the group. Published
// clients discard every other call with a result. Such a call need not be made: the result is stored without
// a message.

/** Returns an active run after another step, with the number of plans that have no result. */
export function withStep(
  active: ActiveRun,
  step: { callType: CallType; head: StepHead | null },
  changed: Pick<ActiveRun, "steps" | "size" | "lastCall">,
): ActiveRun {
  const openPlans = countOpenPlans(active, step);
  const { openPlans: _before, ...others } = active;
  return { ...others, ...changed, ...(openPlans === undefined ? {} : { openPlans }) };
}

/**
 * Returns the number of plans without a result after a step. The first plan of a group is posted in the last
 * call to the endpoint, and no step is posted in that call after the plans.
 */
function countOpenPlans(
  { openPlans, lastCall }: ActiveRun,
  { callType, head }: { callType: CallType; head: StepHead | null },
): number | undefined {
  if (head === null || head.concurrent <= 1) return undefined;
  if (callType !== "step") return openPlans;
  if (head.stepId === 0) return lastCall ? 1 : openPlans === undefined ? undefined : openPlans + 1;
  return openPlans === undefined || openPlans <= 1 ? undefined : openPlans - 1;
}

type PostedResult = Pick<MessageInput, "delay" | "notBefore"> & {
  post: Extract<RunPost, { kind: "step" | "call" }>;
};

/**
 * Reports whether the client would discard the call that carries a posted result, because other steps of the
 * group have no result yet.
 */
export const isDiscarded = (
  { skipsCallsOf = "older" }: Moment,
  { openPlans = 0 }: ActiveRun,
  { post: { kind, head, features }, delay, notBefore }: PostedResult,
): boolean =>
  openPlans > 1 &&
  kind === "step" &&
  head !== null &&
  head.stepId > 0 &&
  head.concurrent > 1 &&
  delay === null &&
  notBefore === null &&
  features !== undefined &&
  skipsCallsOf !== "none" &&
  isKnownClient(features) &&
  (skipsCallsOf === "all" || !features.captured);

/**
 * Reports whether a post comes from a published client with parallel steps. The version of the protocol is
 * the same for all of them. Clients from version 1 on also name `WF_TriggerOnConfig` (`captured`) in every
 * post. They call `afterExecution` of middlewares in the calls that they discard.
 */
const isKnownClient = ({ lazyFetch, initialBody }: RunFeatures): boolean => lazyFetch && initialBody;
