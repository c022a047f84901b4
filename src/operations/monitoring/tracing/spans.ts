/** A span as it is exported. Times are in milliseconds. */
export type TraceSpan = {
  name: "publish" | "deliver";
  traceId: string;
  spanId: string;
  /** Absent for the first span of a trace, and if the span has a link instead. */
  parentSpanId?: string;
  /** A span of the same trace that caused this one a while ago. */
  linkedSpanId?: string;
  traceState?: string;
  startedAt: number;
  endedAt: number;
  attributes: Readonly<Record<string, string | number | null>>;
  /** The reason of a failure. Empty: the failure has no text. Null: the work succeeded. */
  error: string | null;
};

/**
 * The names of all attributes. The messaging names of OpenTelemetry may still change, so names are only
 * here.
 */
export const spanAttributes = {
  system: "messaging.system",
  operation: "messaging.operation.name",
  operationType: "messaging.operation.type",
  messageId: "messaging.message.id",
  bodySize: "messaging.message.body.size",
  destination: "messaging.destination.name",
  method: "http.request.method",
  status: "http.response.status_code",
  resends: "http.request.resend_count",
  url: "url.full",
  address: "server.address",
  port: "server.port",
  errorType: "error.type",
  account: "waypost.account",
  outcome: "waypost.outcome",
  runId: "waypost.run.id",
  step: "waypost.step",
  messages: "waypost.messages",
} as const;

const kinds = { publish: 4, deliver: 3 } as const;
const failed = 2;
/** The maximum length of an attribute, in characters. The rest is cut. */
const maxText = 1024;

/** The sender of the spans: the version and the node of this server. */
export type SpanSource = { version: string; node: string };

/** Returns spans as a request of OTLP in JSON. */
export const formatSpans = (spans: readonly TraceSpan[], { version, node }: SpanSource): string =>
  JSON.stringify({
    resourceSpans: [
      {
        resource: {
          attributes: toAttributes({
            "service.name": "waypost",
            "service.version": version,
            "service.instance.id": node,
          }),
        },
        scopeSpans: [{ scope: { name: "waypost", version }, spans: spans.map(toOtlp) }],
      },
    ],
  });

const toOtlp = (span: TraceSpan): object => ({
  traceId: span.traceId,
  spanId: span.spanId,
  parentSpanId: span.parentSpanId,
  traceState: span.traceState,
  name: span.name,
  kind: kinds[span.name],
  startTimeUnixNano: toNanoseconds(span.startedAt),
  endTimeUnixNano: toNanoseconds(Math.max(span.startedAt, span.endedAt)),
  attributes: toAttributes(span.attributes),
  ...(span.linkedSpanId !== undefined && { links: [{ traceId: span.traceId, spanId: span.linkedSpanId }] }),
  status: span.error === null ? {} : { code: failed, message: cut(span.error) },
});

/** Returns the beginning of a string, without half a character: a collector may refuse all spans for one. */
const cut = (text: string): string => text.slice(0, maxText).toWellFormed();

/** Returns nanoseconds as OTLP writes them in JSON: as a string, because they exceed the numbers of JSON. */
const toNanoseconds = (time: number): string => `${Math.round(time)}000000`;

const toAttributes = (attributes: TraceSpan["attributes"]): object[] =>
  Object.entries(attributes).flatMap(([key, value]) => {
    if (value === null) return [];
    return [
      {
        key,
        value: typeof value === "number" ? { intValue: String(value) } : { stringValue: cut(value) },
      },
    ];
  });
