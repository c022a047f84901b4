import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isDlqId } from "../../../engine/core/values/ids.ts";
import { route } from "../../route/route.ts";
import { byDlqId, failedRunsTag, findFailedRun, makeNotFound } from "./failedRunEntries.ts";

const failedRunSchema = z
  .object({
    workflowRunId: z.string().describe("The id of the run."),
    workflowCreatedAt: z.int().describe("When the run was created, in Unix milliseconds."),
  })
  .describe("The failed run.");

/** Calls the failure callback of a failed run again. */
export const repeatFailureCallback = route({
  method: "POST",
  path: "/v2/workflows/dlq/callback/{dlqId}",
  tag: failedRunsTag,
  summary: "Call a failure callback again",
  about: "Only a failure callback that has itself failed (state CALLBACK_FAIL) can be called again.",
  params: byDlqId,
  answers: {
    200: { about: "The failed run whose failure callback is called again.", schema: failedRunSchema },
  },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, context }) => {
    if (!isDlqId(dlqId)) throw makeNotFound(dlqId);
    const { runId, createdAt } = await context.store.execute("repeatFailureCallback", {
      account: account.id,
      dlqId,
    });
    return { status: 200, body: { workflowRunId: runId, workflowCreatedAt: createdAt } };
  },
});

/** Cancels the failure callback of a failed run. */
export const cancelFailureCallback = route({
  method: "DELETE",
  path: "/v2/workflows/dlq/callback/{dlqId}",
  tag: failedRunsTag,
  summary: "Cancel a failure callback",
  about:
    "Only a failure callback that is in progress (state CALLBACK_INPROGRESS) can be cancelled. " +
    "If it is being sent at this moment, the request is aborted, but the receiver may have got it.",
  params: byDlqId,
  answers: { 200: { about: "The failed run whose failure callback is cancelled.", schema: failedRunSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, context }) => {
    const { deadLetter, failed } = await findFailedRun(context, account.id, dlqId);
    const callback = failed?.run?.failure?.callback;
    const messageIds =
      deadLetter.failureCallback?.state === "CALLBACK_INPROGRESS" && callback ? [callback.messageId] : [];
    const { cancelled } = await context.store.execute("cancel", { account: account.id, messageIds });
    if (cancelled === 0)
      throw new Refusal(
        "invalid",
        `dlqId: the failure callback of ${dlqId} is not in progress and cannot be cancelled`,
      );
    return {
      status: 200,
      body: { workflowRunId: deadLetter.run?.runId, workflowCreatedAt: deadLetter.run?.createdAt },
    };
  },
});
