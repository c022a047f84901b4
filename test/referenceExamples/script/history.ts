import type { Area } from "../../recording/area.ts";
import { startArea } from "../../recording/area.ts";
import type { Recorder } from "../recorder.ts";

/** Publishes messages that fail at once. */
async function fail(area: Area, count: number): Promise<string[]> {
  for (let number = 1; number <= count; number++)
    await area.publish(area.publishTo("500", "invoices"), {
      headers: { "Content-Type": "text/plain", "Svc-Retries": "0", "Svc-Label": "billing" },
      body: `invoice ${number}`,
    });
  const { json } = await area.ask("GET", "/v2/dlq");
  return (json.messages as { dlqId: string }[]).map(({ dlqId }) => dlqId);
}

/** Dead letters. */
export async function showDeadLetters(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "dlq");
  const [one = "", two = "", three = "", four = ""] = await fail(area, 5);
  await recorder.show(area, "GET /v2/dlq", { query: { count: 1 } });
  await recorder.show(area, "GET /v2/dlq/groups");
  await recorder.show(area, "GET /v2/dlq/{dlqId}", { path: { dlqId: one } });
  recorder.session.destination.mend(new URL(area.url("500", "invoices")).pathname, "200");
  await recorder.show(area, "POST /v2/dlq/{dlqId}/replay", {
    path: { dlqId: one },
    body: { url: area.url("200", "bills") },
  });
  await recorder.show(area, "POST /v2/dlq/retry/{dlqId}", { path: { dlqId: one } });
  await recorder.show(area, "POST /v2/dlq/retry", { query: { dlqIds: two } });
  await recorder.show(area, "DELETE /v2/dlq/{dlqId}", { path: { dlqId: three } });
  await recorder.show(area, "DELETE /v2/dlq", { body: { dlqIds: [four] } });
}

/** The log. */
export async function showLog(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "log");
  await area.publish(area.publishTo("200", "welcome"), {
    headers: { "Content-Type": "text/plain", "Svc-Label": "signup" },
    body: "hello ann",
  });
  for (const name of ["events", "logs"])
    await recorder.show(area, `GET /v2/${name}`, { query: { label: "signup", count: 1 } });
  await showTail(recorder, area);
}

/** Follows the log until a message is delivered. The stream ends when its token is revoked. */
async function showTail(recorder: Recorder, area: Area): Promise<void> {
  const { json } = await area.json("POST /v2/tokens", { verbs: ["read"] });
  const path = "/v2/logs/tail?label=signup";
  const { session } = recorder;
  const response = await fetch(session.server + path, { headers: { authorization: `Bearer ${json.token}` } });
  await area.ask("POST", area.publishTo("200", "welcome"), { headers: { "Svc-Label": "signup" } });
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += Buffer.from(chunk).toString();
    if (/"DELIVERED"/.test(text)) await area.ask("DELETE", `/v2/tokens/${json.id ?? json.tokenId}`);
  }
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith('{"heartbeat"'));
  recorder.keep("GET /v2/logs/tail", {
    request: { path },
    response: {
      status: response.status,
      type: String(response.headers.get("content-type")),
      body: lines.map((line) => JSON.parse(line) as unknown),
    },
  });
}

/** Jobs. */
export async function showJobs(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "jobs");
  await fail(area, 3);
  const { json } = await recorder.show(area, "POST /v2/jobs", {
    body: { action: "dlq.delete", filter: { label: "billing" } },
  });
  const path = { jobId: json.jobId as string };
  await recorder.show(area, "GET /v2/jobs/{jobId}", { path, until: ({ state }) => state === "done" });
  await recorder.show(area, "GET /v2/jobs");
  await recorder.show(area, "DELETE /v2/jobs/{jobId}", { path });
}

/** Lets the hours of series begin when the series began, so that an example does not depend on the time. */
function startHoursAtFirst(body: unknown): unknown {
  const { series } = body as { series: { firstAt: number; hours: { start: number }[] }[] };
  for (const { hours, firstAt } of series) for (const hour of hours) hour.start = firstAt;
  return body;
}

/** The figures of an account. */
export async function showOverview(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "overview");
  await area.publish(area.publishTo("200", "welcome"), { body: "hello" });
  await area.ask("POST", "/v2/queues/orders/pause");
  await area.ask("POST", `/v2/enqueue/orders/${area.url("200", "order")}`, { body: "order 17" });
  await recorder.show(area, "GET /v2/overview");
  await recorder.show(area, "GET /v2/activity", {
    tidy: (body) => {
      const { points, ...rest } = body as { points: unknown[] };
      return { ...rest, points: points.slice(-1) };
    },
  });
  await recorder.show(area, "GET /v2/hosts");
  await area.ask("POST", area.publishTo("slow", "welcome"), { body: "hello" });
  const path = { host: new URL(area.url("slow", "welcome")).host };
  await recorder.show(area, "GET /v2/hosts/{host}", {
    path,
    tidy: (body) => {
      const { minutes, ...rest } = body as { minutes: unknown[] };
      return { ...rest, minutes: minutes.slice(-1) };
    },
  });
  await recorder.show(area, "POST /v2/hosts/{host}/end-attempts", {
    path,
    query: { startedBefore: Date.now() },
  });
  await area.ask("POST", area.publishTo("200", "welcome"), { headers: { "Svc-Retries": "many" } });
  await recorder.show(area, "GET /v2/unpublished", { tidy: startHoursAtFirst });
  await recorder.show(area, "GET /v2/admin/unpublished", {
    query: { count: 100 },
    tidy: (body) => {
      (body as { accounts: unknown[] }).accounts.forEach(startHoursAtFirst);
      return body;
    },
  });
  await recorder.show(area, "GET /v2/search", { query: { query: "refused" } });
}

/** The audit log. */
export async function showAuditLog(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "audit");
  await area.json("POST /v2/queues", { queueName: "orders", parallelism: 2 });
  await recorder.show(area, "GET /v2/audit", { query: { count: 1 } });
}
