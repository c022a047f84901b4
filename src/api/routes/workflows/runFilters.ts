import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { RunFilter } from "../../../engine/core/search/runFilter.ts";
import { singleText, textList, timestamp } from "../../http/parameters.ts";
import { parseSegment } from "../../settings/segment.ts";
import { cursorParameter } from "../lists/filters.ts";

/** Returns a filter parameter that takes any of these states. */
export const makeStateParameter = (states: readonly string[]) =>
  textList()
    .pipe(z.array(z.enum(states, { error: `must be one of ${states.join(", ")}` })))
    .optional();

/** The query parameters by which the lists of runs are searched. */
export const runFilters = {
  cursor: cursorParameter,
  workflowRunId: singleText()
    .optional()
    .describe("The id of the run. Several runs may have had the same id, one after another."),
  workflowUrl: textList("https?://").optional().describe("The URL of the workflow, exactly as it was given."),
  workflowCreatedAt: timestamp()
    .optional()
    .describe("The exact time at which the run was created, in Unix milliseconds."),
  workflowRuns: textList()
    .optional()
    .describe(
      "Runs in the form id@createdAt, separated by commas; createdAt is in Unix milliseconds. If given, " +
        "all other filters are ignored.",
    ),
  messageId: singleText()
    .optional()
    .describe(
      "The id of a message. A list of runs shows the run that the message belongs to; a list of events " +
        "shows the events of the message.",
    ),
  host: textList()
    .optional()
    .describe("The host of the workflow's URL, with the port unless it is the default one."),
  path: textList("/").optional().describe("The path of the workflow's URL, starting with /."),
  label: textList().optional().describe("A label. The run must have at least one of the given labels."),
  flowControlKey: textList().optional().describe("The flow-control key of the run."),
  callerIp: textList().optional().describe("The IP address of the client that started the run."),
  callerIP: textList().optional().describe("Alias of callerIp."),
  fromDate: timestamp().optional().describe("The earliest creation time, inclusive, in Unix milliseconds."),
  toDate: timestamp().optional().describe("The latest creation time, inclusive, in Unix milliseconds."),
};

/** The parameters as their schemas return them. */
export type RunFilterParameters = Partial<z.output<z.ZodObject<typeof runFilters>>>;

/** Returns the filter for a message. An invalid id becomes "-", which matches no run. */
export const toMessageFilter = ({ messageId, workflowRuns }: RunFilterParameters): { messageId?: string } =>
  messageId === undefined || workflowRuns ? {} : { messageId: isId(messageId) ? messageId : "-" };

/**
 * Returns the filter for the given parameters. Throws `Refusal` if the dates or the names of runs are
 * invalid.
 */
export function toRunFilter(query: RunFilterParameters): RunFilter {
  if ((query.fromDate ?? 0) > (query.toDate ?? Infinity))
    throw new Refusal("invalid", "fromDate: is later than toDate; swap them");
  if (query.workflowRuns) return { runs: query.workflowRuns.map(parseRunName) };
  const ips = [...(query.callerIp ?? []), ...(query.callerIP ?? [])];
  return {
    ...(query.workflowRunId === undefined
      ? {}
      : { runIds: [parseSegment("workflowRunId", query.workflowRunId)] }),
    ...(query.workflowUrl && { urls: query.workflowUrl }),
    ...(query.workflowCreatedAt === undefined ? {} : { createdAt: query.workflowCreatedAt }),
    ...(query.host && { hosts: query.host }),
    ...(query.path && { paths: query.path }),
    ...(query.label && { labels: query.label }),
    ...(query.flowControlKey && { flowControlKeys: query.flowControlKey }),
    ...(ips.length > 0 ? { callerIps: ips } : {}),
    ...(query.fromDate === undefined ? {} : { from: query.fromDate }),
    ...(query.toDate === undefined ? {} : { to: query.toDate }),
  };
}

/** Parses `id@createdAt`. The id may itself contain an @. */
function parseRunName(text: string): { runId: string; createdAt: number } {
  const [, runId, createdAt] = /^(.+)@(\d{1,15})$/s.exec(text) ?? [];
  if (runId === undefined)
    throw new Refusal(
      "invalid",
      `workflowRuns: ${JSON.stringify(text.slice(0, 200))} is invalid; use id@createdAt`,
    );
  return { runId: parseSegment("workflowRuns", runId), createdAt: Number(createdAt) };
}
