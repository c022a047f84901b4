import { expect, test } from "vitest";
import type { Arrival, Process } from "../../../server/waypost.ts";
import {
  developmentToken,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../../../server/waypost.ts";

// The trace of a publish reaches everything that follows from it.

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
const trace = { traceparent, tracestate: "vendor=abc" };

const start = (): Promise<Process> => startWaypost(["dev", "--port", "0", "--data", temporaryFolder()]);

type Post = { headers?: Record<string, string>; body?: string };

async function post(server: Process, path: string, { headers = {}, body = "hello" }: Post) {
  const authorization = `Bearer ${developmentToken}`;
  const url = `${server.url}${path}`;
  const response = await fetch(url, { method: "POST", headers: { authorization, ...headers }, body });
  const text = await response.text();
  expect(response.status, text).toBeLessThan(300);
  return JSON.parse(text) as Record<string, unknown>;
}

/** Returns the span ids of these requests, which must all belong to the trace. */
function listSpans(arrivals: readonly Arrival[]): string[] {
  return arrivals.map(({ path, headers }) => {
    expect(headers["tracestate"], path).toBe("vendor=abc");
    const [, spanId = ""] =
      new RegExp(`^00-${traceId}-([0-9a-f]{16})-01$`).exec(String(headers["traceparent"])) ?? [];
    expect(spanId, path).not.toBe("");
    return spanId;
  });
}

test("attempts and callbacks belong to the trace of the publish, each with its own span", async () => {
  const destination = await startDestination(({ path }) => ({ status: path === "/bad" ? 500 : 200 }));
  const server = await start();
  await post(server, `/v2/publish/${destination.url}/bad`, {
    headers: {
      ...trace,
      "Svc-Retries": "1",
      "Svc-Retry-Delay": "10",
      "Svc-Callback": `${destination.url}/callback`,
      "Svc-Failure-Callback": `${destination.url}/failed`,
    },
  });
  // Two attempts, a callback for each, and the failure callback.
  await destination.until(({ length }) => length === 5);
  const spans = listSpans(destination.arrivals);
  expect(new Set([...spans, "00f067aa0ba902b7"]).size).toBe(6);
});

test("messages of a batch have the trace of the request, or their own", async () => {
  const destination = await startDestination();
  const server = await start();
  const own = `00-${"a".repeat(32)}-${"b".repeat(16)}-00`;
  const items = [
    { destination: `${destination.url}/shared` },
    { destination: `${destination.url}/own`, headers: { traceparent: own } },
  ];
  await post(server, "/v2/batch", { headers: trace, body: JSON.stringify(items) });
  await destination.until(({ length }) => length === 2);
  listSpans(destination.arrivals.filter(({ path }) => path === "/shared"));
  const other = destination.arrivals.find(({ path }) => path === "/own");
  expect(other?.headers["traceparent"]).toMatch(/^00-a{32}-(?!b{16})[0-9a-f]{16}-00$/);
});

test("a run, its failure callback and the resumed run belong to the trace of the trigger", async () => {
  const answers = [500, 200, 500];
  const destination = await startDestination(() => ({ status: answers.shift() ?? 500 }));
  const server = await start();
  await post(server, `/v2/trigger/${destination.url}/workflow`, {
    headers: { ...trace, "Upstash-Retries": "0" },
  });
  // The call of the endpoint, and the failure callback.
  await destination.until(({ length }) => length === 2);
  const headers = { authorization: `Bearer ${developmentToken}` };
  const listed = await fetch(`${server.url}/v2/workflows/dlq`, { headers });
  const { messages } = (await listed.json()) as { messages: { dlqId: string }[] };
  await post(server, `/v2/workflows/dlq/resume/${messages[0]?.dlqId}`, { body: "" });
  await destination.until(({ length }) => length >= 3);
  expect(new Set(listSpans(destination.arrivals.slice(0, 3))).size).toBe(3);
});

test("without a valid trace a delivery has none, and a header of the message is left as it is", async () => {
  const destination = await startDestination();
  const server = await start();
  const publish = (path: string, headers: Record<string, string>) =>
    post(server, `/v2/publish/${destination.url}/${path}`, { headers });
  await publish("none", {});
  await publish("bad", { traceparent: "00-zz-1-01", tracestate: "a=1" });
  await publish("zero", { traceparent: `00-${"0".repeat(32)}-00f067aa0ba902b7-01` });
  await publish("state", { traceparent, tracestate: `token=${developmentToken}` });
  await publish("forwarded", { ...trace, "Svc-Forward-Traceparent": "the publisher's own" });
  await destination.until(({ length }) => length === 5);
  const seen = Object.fromEntries(
    destination.arrivals.map(({ path, headers }) => [path, [headers["traceparent"], headers["tracestate"]]]),
  );
  for (const path of ["/none", "/bad", "/zero"]) expect(seen[path], path).toEqual([undefined, undefined]);
  expect(seen["/state"]).toEqual([expect.stringContaining(traceId), undefined]);
  expect(seen["/forwarded"]?.[0]).toBe("the publisher's own");
});
