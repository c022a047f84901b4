import { z } from "zod";
import { headerMap } from "../../core/sending/callback.ts";
import type { HeaderList } from "../../core/model/message.ts";
import type { Waiter } from "../../core/model/run.ts";
import type { Notified } from "../../core/workflows/wait.ts";
import type { Proof } from "../auth/bearer.ts";
import { containsToken } from "../settings/forward.ts";
import { canonicalName } from "../../core/values/headers.ts";
import { redactForwarded } from "../publishing/keptSettings.ts";

const headers = (about: string) => z.record(z.string(), z.array(z.string())).describe(`${about}: names to lists of values.`);

/** What waits for an event, as it is shown. */
export const waiterSchema = z.object({
  url: z.string().describe("The endpoint that goes on with the event."),
  headers: headers("Headers of the post that waits"),
  deadline: z.int().optional().describe("Until when it waits, in unix seconds."),
  timeoutUrl: z.string().optional().describe("The endpoint that goes on without the event."),
  timeoutHeaders: headers("Headers for that").optional(),
  workflowRunId: z.string().optional().describe("The run that waits."),
  eventId: z.string().optional().describe("The event that it waits for."),
});

export const waiterJson = (waiter: Waiter): z.output<typeof waiterSchema> => ({
  url: waiter.url,
  headers: headerMap(redactGiven(waiter.given, waiter)),
  ...(waiter.dueAt === null ? {} : { deadline: Math.floor(waiter.dueAt / 1000) }),
  timeoutUrl: waiter.timeoutUrl,
  timeoutHeaders: headerMap(redactGiven(waiter.timeoutGiven, waiter)),
  workflowRunId: waiter.runId,
  eventId: waiter.event,
});

const redactGiven = (given: HeaderList, { redaction }: Waiter): HeaderList => (redaction ? redactForwarded(given, redaction) : given);

/** What became of a notification, for one waiter. */
export const notifiedSchema = z.object({
  waiter: waiterSchema.optional().describe("What waited. Absent when nothing did yet, and the event is kept for the run."),
  messageId: z.string().optional().describe("The message that brings the event to the endpoint."),
  url: z.string().optional().describe("The endpoint that goes on with the event, like `waiter.url`."),
  workflowRunId: z
    .string()
    .describe("The run. A token without the verb read gets only the id that it has named itself, and no URL; otherwise these are empty."),
  workflowCreatedAt: z.int().optional().describe("When the run was created, in unix milliseconds."),
  deduplicated: z.literal(false).optional(),
});

/**
 * Returns the answer to a notification. `only`: for a token that may not read. That token learns that a step was notified, and of the run only the
 * id that the request named. All other texts are empty, because clients expect texts.
 */
export function notifiedJson(
  { waiter, messageId, runId, createdAt }: Notified,
  visibleRun: { runId: string } | null,
): z.output<typeof notifiedSchema> {
  if (visibleRun) return { waiter: { url: "", headers: {} }, messageId, url: "", workflowRunId: visibleRun.runId, deduplicated: false };
  const shown = waiterJson(waiter);
  return { waiter: shown, messageId, url: shown.url, workflowRunId: runId, workflowCreatedAt: createdAt, deduplicated: false };
}

/** The headers of a post that are kept to be shown: settings, and the type of the content. None that tells the token. */
export function listShownHeaders(rawHeaders: readonly string[], proof: Pick<Proof, "token"> | null): HeaderList {
  const given: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    const value = rawHeaders[at + 1] ?? "";
    if (/^((svc|upstash)-|content-type$)/i.test(name)) given.push([canonicalName(name), value]);
  }
  return withoutToken(given, proof);
}

/** The headers of which none tells the token. */
export const withoutToken = (headers: HeaderList, proof: Pick<Proof, "token"> | null): HeaderList =>
  proof ? headers.filter(([, value]) => !containsToken(value, proof.token)) : headers;
