import { Refusal } from "../../core/values/errors.ts";
import type { Store } from "../../store/store.ts";
import { readable } from "../settings/grammar.ts";
import type { Addressed } from "./runNow.ts";
import { runIdNow } from "./runNow.ts";
import { isKey } from "../settings/table.ts";

/** What the URL of a webhook names: an account by its id, one of its runs, and an event of that. */
export type HookParams = { userId: string; workflowRunId: string; eventId: string };

/** The parameters of a path that are its. Clients write the id of their run as they read it from a header, in latin 1. */
export const hookParams = ({ userId = "", workflowRunId = "", eventId = "" }: Readonly<Partial<Record<string, string>>>): HookParams => ({
  ...{ userId, workflowRunId: readable(workflowRunId), eventId: readable(eventId) },
});

/** What a call to the webhook is for. */
export const hookOf = ({ userId, workflowRunId, eventId }: HookParams): Addressed => ({
  ...{ account: userId, runId: workflowRunId, event: eventId, kind: "webhook" },
});

/**
 * Looks whether the run of a webhook goes on, before anything more is taken from whoever calls it: the URL is all that a
 * caller shows. Throws `Refusal`, with the same words whatever there is not.
 */
export async function checkHook(store: Store, { userId, workflowRunId, eventId }: HookParams): Promise<void> {
  const isPossible = isKey(userId) && isKey(workflowRunId) && isKey(eventId);
  if (isPossible && (await runIdNow(store, hookOf({ userId, workflowRunId, eventId }))) !== null) return;
  throw new Refusal("not-found", "path: there is nothing at this path, or not any more");
}
