import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { startWorkflowTestServer, waitForEnd } from "../../../clients/workflowTestServer.ts";
import {
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../../../server/waypost.ts";

// The spans that a collector receives from a real server.

type Value = { stringValue?: string; intValue?: string };
type Received = {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  traceState?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: { key: string; value: Value }[];
  links?: { traceId: string; spanId: string }[];
  status: { code?: number; message?: string };
};
type OtlpBody = {
  resourceSpans: {
    resource: { attributes: { key: string; value: Value }[] };
    scopeSpans: { spans: Received[] }[];
  }[];
};

type Destination = Awaited<ReturnType<typeof startDestination>>;

const parse = ({ arrivals }: Destination): OtlpBody[] =>
  arrivals.map(({ body }) => JSON.parse(body.toString()) as OtlpBody);

const listSpans = (collector: Destination): Received[] =>
  parse(collector)
    .flatMap(({ resourceSpans }) => resourceSpans)
    .flatMap(({ scopeSpans }) => scopeSpans)
    .flatMap(({ spans }) => spans)
    .toSorted((a, b) => Number(BigInt(a.startTimeUnixNano) - BigInt(b.startTimeUnixNano)));

const toObject = (attributes: Received["attributes"]): Record<string, string | undefined> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));

/** Waits for this many spans, and returns those with each name. */
async function receive(collector: Destination, count: number) {
  await collector.until(() => listSpans(collector).length >= count);
  const spans = listSpans(collector);
  expect(spans).toHaveLength(count);
  const named = (name: string) => spans.filter((span) => span.name === name);
  return { publishes: named("publish"), deliveries: named("deliver") };
}

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const callerSpan = "00f067aa0ba902b7";
const trace = { traceparent: `00-${traceId}-${callerSpan}-01`, tracestate: "vendor=abc" };
const authorization = `Bearer ${developmentToken}`;

async function start(environment: NodeJS.ProcessEnv) {
  const server = await startWaypost(["dev", "--port", "0", "--data", temporaryFolder()], environment);
  const post = async (path: string, headers: Record<string, string> = {}, body = "payload") => {
    const url = `${server.url}${path}`;
    const response = await fetch(url, { method: "POST", headers: { authorization, ...headers }, body });
    expect(response.status).toBeLessThan(300);
    return (await response.json()) as { messageId: string; workflowRunId: string };
  };
  return { ...server, post };
}

const urlOf = ({ attributes }: Received): string => toObject(attributes)["url.full"] ?? "";
const spanIdOf = (header: unknown): string => String(header).slice(36, 52);

describe("with an OTLP endpoint", () => {
  test("a publish with one retry has three spans, which show no secret", async () => {
    const collector = await startDestination();
    const statuses = [500, 200];
    const destination = await startDestination(() => ({ status: statuses.shift() ?? 200 }));
    const server = await start({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: "api-key=a%20key",
    });
    const to = destination.url.replace("http://", "http://user:password@");
    const { messageId } = await server.post(`/v2/publish/${to}/path?token=hidden`, {
      ...trace,
      "Svc-Retries": "1",
      "Svc-Retry-Delay": "10",
      "Svc-Forward-Authorization": "Bearer hidden",
    });
    const { publishes, deliveries } = await receive(collector, 3);
    const [publish] = publishes;
    expect(publish).toMatchObject({
      traceId,
      parentSpanId: callerSpan,
      traceState: "vendor=abc",
      kind: 4,
      status: {},
    });
    expect(toObject(publish?.attributes ?? [])).toEqual({
      "messaging.system": "waypost",
      "messaging.operation.name": "publish",
      "messaging.operation.type": "send",
      "messaging.message.id": messageId,
      "messaging.message.body.size": "7",
      "waypost.account": expect.any(String),
    });
    const attempt = {
      "messaging.system": "waypost",
      "messaging.operation.name": "deliver",
      "messaging.message.id": messageId,
      "http.request.method": "POST",
      "url.full": `${destination.url}/path`,
      "server.address": "127.0.0.1",
      "server.port": new URL(destination.url).port,
      "waypost.account": expect.any(String),
    };
    expect(deliveries.map(({ attributes }) => toObject(attributes))).toEqual([
      { ...attempt, "http.response.status_code": "500", "waypost.outcome": "retry", "error.type": "500" },
      {
        ...attempt,
        "http.response.status_code": "200",
        "waypost.outcome": "delivered",
        "http.request.resend_count": "1",
      },
    ]);
    const both = { traceId, parentSpanId: publish?.spanId, traceState: "vendor=abc", kind: 3 };
    expect(deliveries).toMatchObject([
      { ...both, status: { code: 2 } },
      { ...both, status: {} },
    ]);
    // The requests carry the ids of these spans.
    expect(deliveries.map(({ spanId }) => spanId)).toEqual(
      destination.arrivals.map(({ headers }) => spanIdOf(headers["traceparent"])),
    );
    for (const { startTimeUnixNano, endTimeUnixNano } of [...publishes, ...deliveries])
      expect(BigInt(endTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(startTimeUnixNano));
    expect(collector.arrivals[0]).toMatchObject({ path: "/v1/traces", headers: { "api-key": "a key" } });
    const resource = parse(collector)[0]?.resourceSpans[0]?.resource.attributes ?? [];
    expect(toObject(resource)).toMatchObject({ "service.name": "waypost" });
    const sent = collector.arrivals.map(({ body }) => body.toString()).join("");
    for (const secret of ["hidden", "password", "payload", developmentToken])
      expect(sent).not.toContain(secret);
  });

  test("a publish without a trace begins one, and an unsampled trace stays without spans", async () => {
    const collector = await startDestination();
    const destination = await startDestination();
    const server = await start({ WAYPOST_OTLP_ENDPOINT: collector.url });
    const unsampled = `00-${traceId}-${callerSpan}-00`;
    await server.post(`/v2/publish/${destination.url}/unsampled`, { traceparent: unsampled });
    await destination.until(({ length }) => length === 1);
    await server.post(`/v2/publish/${destination.url}/new`);
    const { publishes, deliveries } = await receive(collector, 2);
    expect(publishes[0]?.parentSpanId).toBeUndefined();
    expect(deliveries[0]).toMatchObject({
      traceId: publishes[0]?.traceId,
      parentSpanId: publishes[0]?.spanId,
    });
    expect(destination.arrivals.map(({ headers }) => headers["traceparent"])).toEqual([
      expect.stringMatching(new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`)),
      `00-${publishes[0]?.traceId}-${deliveries[0]?.spanId}-01`,
    ]);
  });

  test("the calls of a run with two steps are children of its trigger", async () => {
    const collector = await startDestination();
    const server = await startWorkflowTestServer("SQLite", { WAYPOST_OTLP_ENDPOINT: collector.url });
    try {
      const user = server.createUser();
      const work = user.serve(async (context) => {
        const first = await context.run("first", () => 1);
        return context.run("second", () => first + 1);
      });
      const response = await fetch(`${user.url}/v2/trigger/${work.url}`, {
        method: "POST",
        headers: { authorization: `Bearer ${user.token}`, ...trace },
      });
      const run = (await response.json()) as { workflowRunId: string };
      await waitForEnd(user, run);
      const { publishes, deliveries } = await receive(collector, 4);
      const parent = publishes[0]?.spanId;
      expect(publishes[0]).toMatchObject({ traceId, parentSpanId: callerSpan, status: {} });
      expect(toObject(publishes[0]?.attributes ?? [])["waypost.run.id"]).toBe(run.workflowRunId);
      expect(deliveries.map(({ parentSpanId }) => parentSpanId)).toEqual([parent, parent, parent]);
      expect(deliveries.map(({ attributes }) => toObject(attributes)["waypost.run.id"])).toEqual(
        Array.from({ length: 3 }, () => run.workflowRunId),
      );
      expect(deliveries.map(({ spanId }) => spanId)).toEqual(
        work.calls.map(({ headers }) => spanIdOf(headers["traceparent"])),
      );
    } finally {
      await server.close();
    }
  });

  test("messages of a schedule have a link to the request that created it", async () => {
    const collector = await startDestination();
    const destination = await startDestination();
    const server = await start({ WAYPOST_OTLP_ENDPOINT: collector.url });
    const create = { "Svc-Cron": "0 0 1 1 *" };
    await server.post(`/v2/schedules/${destination.url}/traced`, {
      ...create,
      ...trace,
      "Svc-Schedule-Id": "traced",
    });
    await server.post(`/v2/schedules/${destination.url}/new`, { ...create, "Svc-Schedule-Id": "new" });
    for (const id of ["traced", "new", "new"]) await server.post(`/v2/schedules/${id}/run`, {}, "");
    const { deliveries } = await receive(collector, 3);
    const [traced, ...others] = deliveries.toSorted((a, b) => urlOf(b).localeCompare(urlOf(a)));
    expect(traced).toMatchObject({ traceId, links: [{ traceId, spanId: callerSpan }] });
    expect(traced?.parentSpanId).toBeUndefined();
    // A schedule without a trace begins one at each firing.
    expect(new Set(others.map((span) => span.traceId)).size).toBe(2);
    for (const span of others) expect(span.links ?? span.parentSpanId).toBeUndefined();
  });

  test("a collector that never responds delays neither deliveries nor the stop", async () => {
    const hung = createServer(() => undefined).listen(0, "127.0.0.1");
    onTestFinished(() => void (hung.closeAllConnections(), hung.close()));
    await once(hung, "listening");
    const { port } = hung.address() as AddressInfo;
    const destination = await startDestination();
    const server = await start({ WAYPOST_OTLP_ENDPOINT: `http://127.0.0.1:${port}` });
    const asked = once(hung, "request");
    await server.post(`/v2/publish/${destination.url}/`);
    await asked;
    for (let n = 0; n < 5; n++) await server.post(`/v2/publish/${destination.url}/`);
    await destination.until(({ length }) => length === 6);
    const metrics = await fetch(`${server.url}/metrics`, { headers: { authorization } });
    expect(await metrics.text()).toContain('waypost_trace_spans_total{outcome="dropped"} 0\n');
    server.kill("SIGTERM");
    const { code, err } = await server.ended;
    expect(code).toBe(0);
    expect(err).toContain("the server stopped before the OTLP endpoint responded");
  });
});

test("without an endpoint, no metric of spans is shown, and nothing begins a trace", async () => {
  const destination = await startDestination();
  const server = await start({});
  await server.post(`/v2/publish/${destination.url}/`);
  await destination.until(({ length }) => length === 1);
  expect(destination.arrivals[0]?.headers["traceparent"]).toBeUndefined();
  const metrics = await fetch(`${server.url}/metrics`, { headers: { authorization } });
  expect(await metrics.text()).not.toContain("waypost_trace_spans");
});

test.each([
  [{ WAYPOST_OTLP_ENDPOINT: "collector:4318" }, "must be a URL such as http://127.0.0.1:4318"],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: "http://a:b@c" }, "OTEL_EXPORTER_OTLP_ENDPOINT: must not contain"],
  [{ WAYPOST_OTLP_ENDPOINT: "http://c?d=1" }, "must not contain a query"],
  [{ WAYPOST_OTLP_HEADERS: "a=1,secret" }, "WAYPOST_OTLP_HEADERS: header 2 is not valid"],
  [{ OTEL_EXPORTER_OTLP_HEADERS: "a=secret%0a" }, "OTEL_EXPORTER_OTLP_HEADERS: header 1 is not valid"],
])("%j is refused", async (environment, reason) => {
  const { code, err } = await runWaypost(["config"], environment).ended;
  expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining(reason) });
  expect(err).not.toContain("secret%");
});
