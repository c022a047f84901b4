import { hash, randomBytes } from "node:crypto";
import type { PublishResult } from "../../../engine/core/commands/publish.ts";
import type { Settled } from "../../../engine/core/attempts/applyOutcome.ts";
import type { AccountId, Millis } from "../../../engine/core/values/basics.ts";
import type { Delivery } from "../../../engine/core/model/delivery.ts";
import type { MessageInput } from "../../../engine/core/model/message.ts";
import type { Outcome } from "../../../engine/core/model/attempt.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isSuccessStatus } from "../../../engine/core/values/status.ts";
import { minute } from "../../../engine/core/values/time.ts";
import type { TraceContext } from "../../../engine/core/values/traceContext.ts";
import { toChildParent } from "../../../engine/core/values/traceContext.ts";
import { parseUrl } from "../../../engine/core/values/url.ts";
import { spanAttributes as names, type TraceSpan } from "./spans.ts";

/** The input of a publish: the account and its messages. */
type PublishInput = { account: AccountId; inputs: readonly MessageInput[] };

type TracingOptions = {
  now(): Millis;
  /** Takes a span at once, and never fails. */
  add(span: TraceSpan): void;
  /** Returns the id of the span of an attempt, as the request carries it. */
  toSpanId(messageId: string, attempt: number): string;
};

/** A span may be the child of one that began at most this long before it. A later one has a link to it. */
const longestGap: Millis = minute;

/**
 * Makes the spans of publishes and attempts. The span of a publish becomes the parent that is kept with its
 * message or run. So everything that follows is a child of it, on every node and after every restart.
 */
export class Tracing {
  readonly #options: TracingOptions;

  constructor(options: TracingOptions) {
    this.#options = options;
  }

  /** Runs a publish with the spans of its messages as their parents, and adds the spans when it has ended. */
  async publish<Input extends PublishInput>(
    input: Input,
    run: (input: Input) => Promise<PublishResult[]>,
  ): Promise<PublishResult[]> {
    const startedAt = this.#options.now();
    const spans = input.inputs.map((message) => beginPublish(message));
    const inputs = input.inputs.map((message, at) => {
      const trace = spans[at]?.trace;
      return trace === undefined ? message : { ...message, trace };
    });
    const end = (read: (at: number) => PublishResult | string): void =>
      spans.forEach((begun, at) => {
        const message = input.inputs[at];
        if (begun === null || message === undefined) return;
        const times = { startedAt, endedAt: this.#options.now() };
        this.#options.add(toPublishSpan(begun, { account: input.account, message, ...times }, read(at)));
      });
    try {
      const results = await run({ ...input, inputs });
      end((at) => results[at] ?? "internal");
      return results;
    } catch (error) {
      end(() => (error instanceof Refusal ? error.code : "internal"));
      throw error;
    }
  }

  /** Adds the span of an attempt whose outcome is stored. */
  addAttempt(delivery: Delivery, outcome: Outcome, settled: Settled["became"]): void {
    const { message, attempt } = delivery;
    const { timing, status, error } = outcome;
    // Nothing was sent.
    if (!timing) return;
    const { trace } = message;
    if (trace !== undefined && !isSampled(trace)) return;
    const span: TraceSpan = {
      name: "deliver",
      traceId: trace === undefined ? makeTraceId(message) : readTraceId(trace),
      spanId: this.#options.toSpanId(message.id, attempt),
      startedAt: timing.startedAt,
      endedAt: timing.startedAt + timing.duration,
      attributes: describeAttempt(delivery, outcome, settled),
      error: isSuccessStatus(status) && error === null && settled !== "failed" ? null : (error ?? ""),
    };
    if (trace?.state !== undefined) span.traceState = trace.state;
    if (trace !== undefined)
      span[isLongAfter(delivery, timing.startedAt) ? "linkedSpanId" : "parentSpanId"] = readSpanId(trace);
    this.#options.add(span);
  }
}

/** The span of a publish that has begun. `trace` is what its message keeps. */
type BegunPublish = { trace: TraceContext; parentSpanId: string | null };

/**
 * Returns null if there is no span. A step that the endpoint of a run posts has none, because it belongs to
 * the trace of its run. There is also none if the caller has decided that the trace is not recorded.
 */
function beginPublish({ trace, post }: MessageInput): BegunPublish | null {
  if (post && post.kind !== "start") return null;
  const spanId = randomBytes(8).toString("hex");
  if (trace === undefined)
    return { trace: { parent: `00-${randomBytes(16).toString("hex")}-${spanId}-01` }, parentSpanId: null };
  if (!isSampled(trace)) return null;
  return { trace: { ...trace, parent: toChildParent(trace, spanId) }, parentSpanId: readSpanId(trace) };
}

type PublishPart = { account: AccountId; message: MessageInput; startedAt: Millis; endedAt: Millis };

/** `result` is the result of the publish, or the code of its error. */
function toPublishSpan(
  { trace, parentSpanId }: BegunPublish,
  { account, message, startedAt, endedAt }: PublishPart,
  result: PublishResult | string,
): TraceSpan {
  const refused = typeof result === "string" ? result : "refused" in result ? result.refused : null;
  const one = typeof result === "object" && "messageId" in result ? result : null;
  const each = typeof result === "object" && "each" in result ? result.each.length : null;
  return {
    name: "publish",
    traceId: readTraceId(trace),
    spanId: readSpanId(trace),
    ...(parentSpanId !== null && { parentSpanId }),
    ...(trace.state !== undefined && { traceState: trace.state }),
    startedAt,
    endedAt,
    attributes: {
      [names.system]: "waypost",
      [names.operation]: "publish",
      [names.operationType]: "send",
      [names.account]: account,
      [names.destination]: message.queue ?? message.group,
      [names.messageId]: one?.messageId ?? null,
      [names.messages]: each,
      [names.bodySize]: message.body.byteLength,
      [names.runId]: one?.run?.runId ?? null,
      [names.errorType]: refused,
    },
    error: refused,
  };
}

function describeAttempt(
  { message, attempt }: Delivery,
  { status, error }: Outcome,
  settled: Settled["became"],
): TraceSpan["attributes"] {
  const url = parseUrl(message.url);
  return {
    [names.system]: "waypost",
    [names.operation]: "deliver",
    [names.account]: message.account,
    [names.destination]: message.queue ?? message.group,
    [names.messageId]: message.id,
    [names.method]: message.method,
    [names.url]: url && `${url.protocol}//${url.host}${url.pathname}`,
    [names.address]: url && url.hostname,
    [names.port]: url && Number(url.port || (url.protocol === "https:" ? 443 : 80)),
    [names.status]: status,
    [names.resends]: attempt === 0 ? null : attempt,
    [names.runId]: message.run?.runId ?? null,
    [names.step]: message.run?.stepKey ?? null,
    [names.outcome]: settled,
    [names.errorType]: readErrorType(status, error),
  };
}

function readErrorType(status: number | null, error: string | null): string | null {
  if (status !== null) return isSuccessStatus(status) ? null : String(status);
  return error?.includes("timed out") ? "timeout" : "no_response";
}

/**
 * Reports whether an attempt began long after its publish. A schedule keeps the trace of the request that
 * created it, which is always long ago.
 */
const isLongAfter = ({ message }: Delivery, startedAt: Millis): boolean =>
  message.scheduleId !== null || startedAt - (message.run?.createdAt ?? message.createdAt) > longestGap;

/**
 * Returns the trace id of a message that keeps no trace, such as one of a schedule. Its attempts and
 * callbacks have the same, and so do all messages of a run.
 */
const makeTraceId = ({ id, run, reportsOn }: Delivery["message"]): string =>
  hash("sha256", `trace ${run?.run ?? reportsOn?.messageId ?? id}`, "hex").slice(0, 32);

// A parent is a traceparent of version 00: `00-<trace id>-<span id>-<flags>`.
const readTraceId = ({ parent }: TraceContext): string => parent.slice(3, 35);
const readSpanId = ({ parent }: TraceContext): string => parent.slice(36, 52);
const isSampled = ({ parent }: TraceContext): boolean => (Number.parseInt(parent.slice(53), 16) & 1) === 1;
