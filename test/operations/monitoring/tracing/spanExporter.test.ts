import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../../src/engine/clock/clock.ts";
import { maxWaitingSpans, SpanExporter } from "../../../../src/operations/monitoring/tracing/spanExporter.ts";
import { formatSpans, type TraceSpan } from "../../../../src/operations/monitoring/tracing/spans.ts";

// A collector that is slow, broken or hostile costs spans, which are counted, and nothing else.

type Answer = (response: ServerResponse, request: number) => void;

/** Starts a collector and an exporter to it that does not wait between its requests. */
async function start(answer: Answer) {
  const requests: { traceIds: string[]; headers: Record<string, unknown> }[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { resourceSpans } = JSON.parse(Buffer.concat(chunks).toString()) as {
      resourceSpans: { scopeSpans: { spans: { traceId: string }[] }[] }[];
    };
    const traceIds = resourceSpans[0]?.scopeSpans[0]?.spans.map(({ traceId }) => traceId) ?? [];
    requests.push({ traceIds, headers: { ...request.headers, path: request.url } });
    answer(response, requests.length);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  const port = address && typeof address === "object" ? address.port : 0;
  const warnings: string[] = [];
  const pauses: number[] = [];
  const exporter = new SpanExporter({
    target: { endpoint: `http://127.0.0.1:${port}/base/`, headers: [["api-key", "secret"]] },
    source: { version: "1", node: "nod_1" },
    clock: {
      now: () => systemClock.now(),
      sleep: async (until) => void pauses.push(Math.round((until - systemClock.now()) / 1000)),
    },
    warn: (message) => warnings.push(message),
  });
  /** Resolves when all spans have been exported or dropped. */
  const settled = async (count: number): Promise<void> => {
    await expect.poll(() => exporter.counts.exported + exporter.counts.dropped).toBe(count);
  };
  const close = (): void => void (server.closeAllConnections(), server.close());
  return { exporter, requests, warnings, pauses, settled, close };
}

const makeSpan = (n: number): TraceSpan => ({
  name: "deliver",
  traceId: String(n).padStart(32, "0"),
  spanId: String(n).padStart(16, "0"),
  startedAt: 1_000,
  endedAt: 900,
  attributes: {},
  error: null,
});

const addSpans = (exporter: SpanExporter, count: number): void => {
  for (let n = 0; n < count; n++) exporter.add(makeSpan(n));
};

const end =
  (status: number, body = "{}", headers: Record<string, string> = {}): Answer =>
  (response) =>
    void response.writeHead(status, headers).end(body);

test("spans are sent in requests of at most 512, with the headers, at the path of OTLP", async () => {
  const { exporter, requests, settled } = await start(end(200));
  addSpans(exporter, 1_100);
  await settled(1_100);
  expect(exporter.counts).toEqual({ exported: 1_100, dropped: 0 });
  expect(requests.map(({ traceIds }) => traceIds.length)).toEqual([512, 512, 76]);
  expect(new Set(requests.flatMap(({ traceIds }) => traceIds)).size).toBe(1_100);
  expect(requests[0]?.headers).toMatchObject({
    path: "/base/v1/traces",
    "api-key": "secret",
    "content-type": "application/json",
  });
});

test("429 and 503 are tried again, after the time that the collector names, up to 30 s", async () => {
  const { exporter, requests, pauses, settled } = await start((response, request) => {
    if (request === 1) return end(429, "", { "retry-after": "7" })(response, request);
    if (request === 2) return end(503, "", { "retry-after": "99999" })(response, request);
    if (request === 3) return end(429)(response, request);
    end(200)(response, request);
  });
  addSpans(exporter, 2);
  await settled(2);
  expect(exporter.counts).toEqual({ exported: 2, dropped: 0 });
  expect(requests).toHaveLength(4);
  expect(pauses).toEqual([1, 7, 30, 4]);
});

test.each([
  ["400", 400, 1],
  ["500", 500, 1],
  ["429 each time", 429, 4],
  ["a redirect", 307, 1],
])("after %s, the spans are dropped, counted, and the log says why", async (_, status, count) => {
  const { exporter, requests, warnings, settled } = await start(
    end(status, "no", { location: "http://127.0.0.1:1/" }),
  );
  addSpans(exporter, 3);
  await settled(3);
  expect(exporter.counts).toEqual({ exported: 0, dropped: 3 });
  expect(requests).toHaveLength(count);
  expect(warnings).toEqual([`the OTLP endpoint responded with status ${status}; 3 spans were dropped`]);
});

const beginResponse: Answer = (response) => void response.writeHead(200).write('{"partial');

test("after half a response, the spans are sent again, at most four times", async () => {
  const { exporter, requests, warnings, settled } = await start((response, request) => {
    beginResponse(response, request);
    setImmediate(() => response.destroy());
  });
  addSpans(exporter, 3);
  await settled(3);
  expect(exporter.counts).toEqual({ exported: 0, dropped: 3 });
  expect(requests).toHaveLength(4);
  expect(warnings).toEqual(["the OTLP endpoint cannot be reached; 3 spans were dropped"]);
});

test("while nothing listens at the endpoint, spans are dropped, with one warning a minute", async () => {
  const { exporter, warnings, settled, close } = await start(end(200));
  close();
  addSpans(exporter, 600);
  await settled(600);
  expect(exporter.counts).toEqual({ exported: 0, dropped: 600 });
  expect(warnings).toEqual(["the OTLP endpoint cannot be reached; 512 spans were dropped"]);
});

test("a string that is cut within a character is still valid Unicode", () => {
  const text = `${"a".repeat(1023)}😀`;
  const span = { ...makeSpan(0), attributes: { "waypost.step": text }, error: text };
  const sent = formatSpans([span], { version: "1", node: "nod_1" });
  expect(sent).not.toContain(String.raw`\ud83d`);
  expect(sent.match(/a{1023}\ufffd"/g)).toHaveLength(2);
});

test.each([
  ["a partial success", '{"partialSuccess":{"rejectedSpans":"2","errorMessage":"x"}}', 2],
  ["more rejected spans than were sent", '{"partialSuccess":{"rejectedSpans":"999999"}}', 5],
  ["a negative number", '{"partialSuccess":{"rejectedSpans":-7}}', 0],
  ["no number", '{"partialSuccess":{"rejectedSpans":{"a":1}}}', 0],
  ["null", "null", 0],
  ["no JSON", "<html>", 0],
  ["a response of 10 MB", " ".repeat(10_000_000), 0],
])("with %s, the figures stay true", async (_, body, dropped) => {
  const { exporter, settled } = await start(end(200, body));
  addSpans(exporter, 5);
  await settled(5);
  expect(exporter.counts).toEqual({ exported: 5 - dropped, dropped });
});

test.each<[string, Answer]>([
  ["does not respond", () => undefined],
  ["responds with half a body", beginResponse],
])(
  "while a collector %s, a bounded number of spans waits, and the stop ends the request",
  async (_, answer) => {
    const { exporter, requests, warnings } = await start(answer);
    addSpans(exporter, 1);
    await expect.poll(() => requests.length).toBe(1);
    addSpans(exporter, maxWaitingSpans + 100);
    expect(exporter.counts).toEqual({ exported: 0, dropped: 100 });
    await exporter.stop();
    expect(exporter.counts).toEqual({ exported: 0, dropped: maxWaitingSpans + 101 });
    expect(requests).toHaveLength(1);
    expect(warnings).toHaveLength(1);
    exporter.add(makeSpan(0));
    expect(exporter.counts.dropped).toBe(maxWaitingSpans + 102);
  },
);

test("the stop sends the spans that wait", async () => {
  const { exporter, requests } = await start(end(200));
  addSpans(exporter, 3);
  await exporter.stop();
  expect(requests.map(({ traceIds }) => traceIds.length)).toEqual([3]);
  expect(exporter.counts).toEqual({ exported: 3, dropped: 0 });
});
