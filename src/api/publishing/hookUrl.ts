import { Refusal } from "../../engine/core/values/errors.ts";
import type { Store } from "../../engine/store/store.ts";
import { decodeHeaderText } from "../settings/grammar.ts";
import type { EventAddress } from "./currentRun.ts";
import { findCurrentRunId } from "./currentRun.ts";
import { isValidKey } from "../settings/settingTexts.ts";

/** The parts of a webhook's URL: the id of an account, the id of a run, and the id of an event. */
export type HookParams = { userId: string; workflowRunId: string; eventId: string };

/**
 * Reads the parts of a webhook's URL from the parameters of its path. Clients read the run id from a
 * header, as Latin-1, and put that text into the URL. It is decoded to UTF-8.
 */
export const parseHookParams = ({
  userId = "",
  workflowRunId = "",
  eventId = "",
}: Readonly<Partial<Record<string, string>>>): HookParams => ({
  userId,
  workflowRunId: decodeHeaderText(workflowRunId),
  eventId: decodeHeaderText(eventId),
});

/** Returns the recipient of a call to the webhook. */
export const toEventAddress = ({ userId, workflowRunId, eventId }: HookParams): EventAddress => ({
  account: userId,
  runId: workflowRunId,
  event: eventId,
  kind: "webhook",
});

/**
 * Checks that the run of a webhook is active. This happens before the body of a call is read, because the URL
 * is the only credential of a caller. Throws `Refusal`, with the same text for every reason, so that it
 * reveals nothing.
 */
export async function assertHook(
  store: Store,
  { userId, workflowRunId, eventId }: HookParams,
): Promise<void> {
  const isPossible = isValidKey(userId) && isValidKey(workflowRunId) && isValidKey(eventId);
  if (
    isPossible &&
    (await findCurrentRunId(store, toEventAddress({ userId, workflowRunId, eventId }))) !== null
  )
    return;
  throw new Refusal("not-found", "path: does not exist or no longer exists");
}
