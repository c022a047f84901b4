import { hash } from "node:crypto";
import { z } from "zod";
import type { AttemptReport } from "../../../engine/core/commands/reportAttempt.ts";
import { parseDuration } from "../../../engine/core/values/duration.ts";
import { noResponse } from "../../../engine/core/sending/recordOutcome.ts";
import { isUnavailable, Refusal } from "../../../engine/core/values/errors.ts";
import { limits, logBodyBytes, spans } from "../../../engine/core/values/limits.ts";
import { isSuccessStatus } from "../../../engine/core/values/status.ts";
import type { Bytes, HeaderList, Millis } from "../../../engine/core/values/basics.ts";
import { day, hour } from "../../../engine/core/values/time.ts";
import { parseAttemptToken } from "../../../engine/delivery/attemptToken.ts";
import { formatRefusal } from "../../http/remedies.ts";
import type { ShownAttempt } from "../../auth/shownAttempt.ts";
import { findAttempts } from "../../auth/shownAttempt.ts";
import { readObject } from "../../route/readObject.ts";
import type { IncomingRequest, Route, RouteContext, RouteResponse } from "../../route/route.ts";
import { noParameters, route } from "../../route/route.ts";
import { headersSchema, toHeaderList } from "../../settings/forwardedHeaders.ts";
import { isAckTimeout } from "../../settings/settingTexts.ts";

const reportSchema = z.strictObject({
  outcome: z
    .enum(["ok", "failed", "returned"], "is neither ok, failed nor returned")
    .optional()
    .describe(
      "Whether the work succeeded. With returned, a client gives an attempt back that it has pulled and " +
        "not begun, and no other field may be given. Required, unless extend is given.",
    ),
  status: z
    .int("is not a whole number")
    .min(200, "must be at least 200")
    .max(599, "must be at most 599")
    .optional()
    .describe(
      "The status with which the endpoint would have answered: from 200 to 299 for ok, any other for " +
        "failed. Default: 200 or 500.",
    ),
  headers: headersSchema
    .optional()
    .describe("The headers with which the endpoint would have answered: names to values."),
  body: z
    .string("is not a string")
    .optional()
    .describe("The body with which the endpoint would have answered."),
  bodyBase64: z.base64("is not base64").optional().describe("The body in base64, instead of body."),
  retryAfter: z
    .int("is not a whole number")
    .min(0, "must be at least 0")
    .max(day / 1000, "must be at most a day")
    .optional()
    .describe("For failed, the seconds until the next attempt, if retries are left."),
  extend: z
    .string("is not a string")
    .refine(isAckTimeout, "must be a duration from 1s to 12h")
    .optional()
    .describe("Holds the attempt for at least this time from now on, such as 10m. Reports no outcome."),
});

type Report = z.output<typeof reportSchema>;

const answerSchema = z.object({
  messageId: z.string().describe("The id of the message."),
  became: z
    .enum(["delivered", "retry", "failed"])
    .optional()
    .describe("The result of the report: the message is delivered, is sent again, or has failed for good."),
  until: z
    .int()
    .optional()
    .describe("For extend, when the outcome must have been reported, in Unix milliseconds."),
});

const reportRoute: Route = {
  method: "POST",
  path: "/v2/attempts",
  tag: "Messages",
  access: "attempt",
  summary: "Report the outcome of an attempt",
  unaudited: "the log of the message records the outcome",
  about:
    "For receivers that answered a delivery with status 202 and `Svc-Ack: later`, and for clients that " +
    "pulled a message. " +
    "The header `Svc-Attempt` with the token of the attempt is the only credential. " +
    "The outcome counts as if the endpoint had answered with it: callbacks, retries and dead letters " +
    "follow. " +
    "An attempt that was pulled can also be returned, which uses up no retry. The message is then due " +
    "again: at once, and later after up to a minute if that is repeated. An attempt that was sent cannot " +
    "be returned, because its receiver got the request. " +
    "An attempt has one outcome. A repetition of the same report gets the same response for " +
    `${spans.report / hour} hour. ` +
    "With extend, the attempt is held for longer, in all at most " +
    `${limits.ackTimeout / hour} hours from the answer of the receiver.`,
  params: noParameters,
  query: noParameters,
  body: {
    about: "The outcome, or for how long to hold the attempt.",
    contentType: "application/json",
    schema: reportSchema,
    required: true,
    maxBytes: { messages: 2 },
  },
  answers: { 200: { about: "The report was stored.", schema: answerSchema } },
  refusals: [
    "not-found",
    "conflict",
    "attempt-ended",
    "attempt-reported",
    "attempt-running",
    "limit-exceeded",
  ],
  respond: respondToReport,
};

const itemSchema = reportSchema.extend({
  attempt: z
    .string("is missing or not a string")
    .max(2_000, "is too long")
    .describe("The token of the attempt."),
});

const listSchema = z.strictObject({
  reports: z
    .array(itemSchema, "is missing or not a list")
    .min(1, "is empty")
    .max(limits.pulledAttempts, `has more than ${limits.pulledAttempts} entries`)
    .describe(`The reports, at most ${limits.pulledAttempts}. Each has the fields of POST /v2/attempts.`),
});

const resultSchema = z.union([
  answerSchema,
  z.object({
    error: z.string().describe("Why the report was refused, as `field: what is wrong; what to do`."),
    code: z.string().describe("The code of the error."),
  }),
]);

const reportMany = route({
  method: "POST",
  path: "/v2/attempts/batch",
  tag: "Messages",
  summary: "Report the outcomes of several attempts",
  about:
    "For clients that pull many messages at once. A refused report does not affect the others. Each report " +
    "has the token of its attempt, which must be of the account. If the whole list is refused with a " +
    "status from 500, send it again: a report that was stored gets the same result.",
  needs: "receive",
  unaudited: "the log of each message records the outcome",
  body: {
    ...{ about: "The reports.", contentType: "application/json", schema: listSchema, required: true },
    maxBytes: { messages: 2 },
  },
  answers: {
    200: {
      about: "The result of each report, in the order of the list.",
      schema: z.object({ results: z.array(resultSchema).describe("The results.") }),
    },
  },
  refusals: [],
  handle: async ({ account, incoming, context }) => {
    const { reports } = readObject(listSchema, incoming);
    const tokens = reports.map(({ attempt }) => parseAttemptToken(attempt));
    const found = await findAttempts(context.store, account.id, { tokens, field: "attempt" });
    const results = reports.map(async ({ attempt: _token, ...report }, at) => {
      try {
        return await applyReport(report, found[at], context);
      } catch (error) {
        // A repetition of the whole list is safe, because each report counts once.
        if (!(error instanceof Refusal) || isUnavailable(error)) throw error;
        return { error: formatRefusal(error), code: error.code };
      }
    });
    return { status: 200, body: { results: await Promise.all(results) } };
  },
});

/** The routes for receivers that report the outcome of an attempt after their response. */
export const attempts: readonly Route[] = [reportRoute, reportMany];

async function respondToReport(incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse> {
  const report = readObject(reportSchema, incoming);
  return { status: 200, body: await applyReport(report, incoming.attempt, context) };
}

/** Applies a report and returns its result. Throws `Refusal`. */
async function applyReport(
  report: Report,
  shown: ShownAttempt | Refusal | undefined,
  context: RouteContext,
): Promise<z.output<typeof answerSchema>> {
  if (!shown) throw new Error("only bearers of a token of an attempt are admitted");
  if (shown instanceof Refusal) throw shown;
  const { message, ...attempt } = shown;
  const { messageId } = attempt;
  const { store } = context;
  if (report.extend !== undefined) {
    if (Object.keys(report).length > 1) throw new Refusal("invalid", "extend: give it without an outcome");
    const extension = parseDuration(report.extend) ?? 0;
    const { until } = await untilHeld(context, () =>
      store.execute("extendAttempt", { ...attempt, extension }),
    );
    return { messageId, until };
  }
  const input = { ...attempt, ...toReport(report, message, context) };
  const { became } = await untilHeld(context, () => store.execute("reportAttempt", input));
  return { messageId, became };
}

/** The pauses before a report is tried again that came before the response of its endpoint was stored. */
const earlyPauses: readonly Millis[] = [50, 100, 200, 400, 800, 1_600, 3_200];

/**
 * Runs a command about an attempt. A quick worker may report before the node that sent the delivery has
 * stored its response, so this waits for a few seconds. Throws `Refusal` if the response was not stored by
 * then.
 */
async function untilHeld<T extends object>(
  { wakeAfter }: Pick<RouteContext, "wakeAfter">,
  run: () => Promise<T | { became: "early" }>,
): Promise<Exclude<T, { became: "early" }>> {
  for (const pause of earlyPauses) {
    const answer = await run();
    if (!isEarly(answer)) return answer as Exclude<T, { became: "early" }>;
    await new Promise<void>((resolve) => void wakeAfter(pause, resolve));
  }
  throw new Refusal(
    "attempt-running",
    "the server has not stored yet that you hold the attempt; report again",
    {
      retryAfter: 1,
    },
  );
}

const isEarly = (answer: object): boolean => "became" in answer && answer.became === "early";

/** Returns the report as a command takes it. Throws `Refusal` if its fields contradict each other. */
function toReport(
  report: Report,
  { keepResponse, run }: ShownAttempt["message"],
  { maxBody = limits.messageBytes, responseBytes = maxBody }: RouteContext,
): Pick<AttemptReport, "digest" | "outcome"> {
  const { outcome, status, headers = {}, body, bodyBase64, retryAfter } = report;
  if (outcome === undefined)
    throw new Refusal("invalid", "outcome: missing; give ok, failed or returned, or extend");
  if (outcome === "returned") {
    if (Object.keys(report).length > 1)
      throw new Refusal("invalid", "outcome: give returned without other fields");
    return { digest: "returned", outcome: { ...noResponse, isReturned: true } };
  }
  const isOk = outcome === "ok";
  const code = status ?? (isOk ? 200 : 500);
  if (isSuccessStatus(code) !== isOk)
    throw new Refusal("invalid", `status: ${code} contradicts the outcome ${outcome}`);
  if (body !== undefined && bodyBase64 !== undefined)
    throw new Refusal("invalid", "bodyBase64: give either body or bodyBase64");
  if (isOk && retryAfter !== undefined)
    throw new Refusal("invalid", "retryAfter: only for the outcome failed");
  const bytes: Bytes = Buffer.from(body ?? bodyBase64 ?? "", body === undefined ? "base64" : "utf8");
  if (bytes.byteLength > maxBody)
    throw new Refusal("too-large", `body: ${bytes.byteLength} bytes, the limit is ${maxBody}`);
  const list: HeaderList = [
    ...toHeaderList(headers),
    ...(retryAfter === undefined ? [] : [["Retry-After", String(retryAfter)] as const]),
  ];
  assertHeaders(list);
  const digest = hash("sha256", JSON.stringify([code, list, hash("sha256", bytes, "hex")]), "hex");
  const keptBytes = run?.kind === "call" ? bytes.byteLength : responseBytes;
  return {
    digest,
    outcome: {
      ...{ status: code, headers: list, body: bytes },
      ...(bytes.byteLength > keptBytes && { keptBytes }),
      ...(bytes.byteLength > Math.min(keptBytes, logBodyBytes) && { digest: hash("sha256", bytes, "hex") }),
      ...(keepResponse && { keepsInLog: true as const }),
    },
  };
}

const maxHeaders = 100;

function assertHeaders(list: HeaderList): void {
  const bytes = list.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (list.length > maxHeaders || bytes > limits.headerBytes)
    throw new Refusal(
      "limit-exceeded",
      `headers: at most ${maxHeaders} headers of ${limits.headerBytes} bytes in all`,
    );
  const wrong = list.find(
    ([name, value]) => !/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name) || /[^\t\x20-\x7e\x80-\xff]/.test(value),
  );
  if (wrong) throw new Refusal("invalid", `headers: ${JSON.stringify(wrong[0].slice(0, 100))} is not valid`);
}
