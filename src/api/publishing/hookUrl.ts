import { Refusal } from "../../core/values/errors.ts";
import type { Store } from "../../store/store.ts";
import { decodeHeaderText } from "../settings/grammar.ts";
import type { EventAddress } from "./currentRun.ts";
import { findCurrentRunId } from "./currentRun.ts";
import { isValidKey } from "../settings/table.ts";

/** What the URL of a webhook names: an account by its id, one of its runs, and an event of that. */
export type HookParams = { userId: string; workflowRunId: string; eventId: string };

/** The parameters of a path that are its. Clients write the id of their run as they read it from a header, in latin 1. */
export const parseHookParams = ({
  userId = "",
  workflowRunId = "",
  eventId = "",
}: Readonly<Partial<Record<string, string>>>): HookParams => ({
  userId,
  workflowRunId: decodeHeaderText(workflowRunId),
  eventId: decodeHeaderText(eventId),
});

/** What a call to the webhook is for. */
export const toEventAddress = ({ userId, workflowRunId, eventId }: HookParams): EventAddress => ({
  account: userId,
  runId: workflowRunId,
  event: eventId,
  kind: "webhook",
});

/**
 * Looks whether the run of a webhook goes on, before anything more is taken from whoever calls it: the URL is all that a
 * caller shows. Throws `Refusal`, with the same words whatever there is not.
 */
export async function checkHook(store: Store, { userId, workflowRunId, eventId }: HookParams): Promise<void> {
  const isPossible = isValidKey(userId) && isValidKey(workflowRunId) && isValidKey(eventId);
  if (isPossible && (await findCurrentRunId(store, toEventAddress({ userId, workflowRunId, eventId }))) !== null) return;
  throw new Refusal("not-found", "path: there is nothing at this path, or not any more");
}
