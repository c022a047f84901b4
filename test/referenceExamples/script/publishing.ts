import { startArea } from "../../recording/area.ts";
import type { Recorder } from "../recorder.ts";

/** Publishing, and groups of URLs. */
export async function showPublishing(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "publish");
  await recorder.show(area, "POST /v2/publish/{destination}", {
    path: { destination: area.url("200", "welcome") },
    headers: { "Svc-Retries": "5", "Svc-Label": "signup" },
    body: { user: "ann" },
  });
  await recorder.show(area, "POST /v2/enqueue/{queue}/{destination}", {
    path: { queue: "orders", destination: area.url("200", "orders") },
    body: { order: 1001 },
  });
  await recorder.show(area, "POST /v2/batch", {
    body: [
      { destination: area.url("200", "welcome"), headers: { "Svc-Delay": "10m" }, body: "hello ann" },
      { destination: area.url("200", "orders"), queue: "orders", body: { order: 1002 } },
    ],
  });
}

/** URL groups. */
export async function showGroups(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "groups");
  const signups = { path: { name: "signups" } };
  const mail = { name: "mail", url: area.url("200", "mail") };
  const crm = { name: "crm", url: area.url("200", "crm") };
  await recorder.show(area, "POST /v2/topics/{name}/endpoints", {
    ...signups,
    body: { endpoints: [mail, crm] },
  });
  await recorder.show(area, "PATCH /v2/topics/{name}", {
    ...signups,
    body: { headers: { "Svc-Retries": "1" } },
  });
  await recorder.show(area, "GET /v2/topics");
  await recorder.show(area, "GET /v2/topics/{name}", signups);
  await recorder.show(area, "DELETE /v2/topics/{name}/endpoints", {
    ...signups,
    body: { endpoints: [{ name: "crm" }] },
  });
  await recorder.show(area, "DELETE /v2/topics/{name}", signups);
}

/** Unfinished messages. */
export async function showMessages(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "messages");
  const publish = async (label: string, body: string): Promise<{ messageId: string }> => {
    const headers = { "Content-Type": "text/plain", "Svc-Delay": "1h", "Svc-Label": label };
    const { json } = await area.ask("POST", area.publishTo("200", "welcome"), { headers, body });
    return { messageId: json.messageId as string };
  };
  const path = await publish("signup", "hello ann");
  await recorder.show(area, "GET /v2/messages/{messageId}", { path });
  await recorder.show(area, "GET /v2/messages", { query: { label: "signup" } });
  await recorder.show(area, "POST /v2/messages/{messageId}/send-now", { path });
  const slow = await area.ask("POST", area.publishTo("slow", "welcome"), { body: "hello" });
  await recorder.show(area, "POST /v2/messages/{messageId}/end-attempt", {
    path: { messageId: slow.json.messageId as string },
    query: { attempt: 0 },
  });
  const later = area.url("later", "welcome");
  await area.ask("POST", area.publishTo("later", "welcome"), {
    ...{ body: "render 7", headers: { "Svc-Ack-Timeout": "2h" } },
  });
  const [work] = await recorder.session.destination.until(new URL(later).pathname, 1);
  const [, attempt = ""] = work?.headers.find(([name]) => name.toLowerCase() === "svc-attempt") ?? [];
  recorder.hide(attempt, "$ATTEMPT");
  await recorder.show(area, "POST /v2/attempts", {
    headers: { "Svc-Attempt": attempt },
    body: { outcome: "ok", status: 200, body: "rendered 7" },
  });
  await recorder.show(area, "DELETE /v2/messages/{messageId}", {
    path: await publish("signup", "hello bob"),
  });
  for (const body of ["hello cas", "hello dan"]) await publish("newsletter", body);
  await recorder.show(area, "DELETE /v2/messages", { query: { label: "newsletter" } });
}

/** Messages that clients pull. */
export async function showPulls(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "pulls");
  const origin = "https://worker.internal";
  await recorder.show(area, "PUT /v2/pulled", { body: { origin } });
  await recorder.show(area, "GET /v2/pulled");
  await area.ask("POST", `/v2/publish/${origin}/orders`, { body: "order 7" });
  const { json } = await recorder.show(area, "POST /v2/pull", {
    body: { origin, max: 10, wait: "20s", lease: "5m" },
  });
  const [{ attempt }] = json.attempts as [{ attempt: string }];
  recorder.hide(attempt, "$ATTEMPT");
  await recorder.show(area, "POST /v2/attempts/batch", { body: { reports: [{ attempt, outcome: "ok" }] } });
  await recorder.show(area, "DELETE /v2/pulled", { query: { origin } });
}

/** Queues. */
export async function showQueues(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "queues");
  const orders = { path: { name: "orders" } };
  await recorder.show(area, "POST /v2/queues", { body: { queueName: "orders", parallelism: 2 } });
  await recorder.show(area, "POST /v2/queues/{name}/pause", orders);
  await recorder.show(area, "POST /v2/queues/{name}/resume", orders);
  await area.ask("POST", `/v2/enqueue/orders/${area.url("held", "orders")}`, { body: "order 1001" });
  await recorder.session.destination.until(new URL(area.url("held", "orders")).pathname, 1);
  await recorder.show(area, "GET /v2/queues/{name}/holders", orders);
  await recorder.show(area, "GET /v2/queues/{name}/forecast", orders);
  await recorder.show(area, "GET /v2/queues");
  await recorder.show(area, "GET /v2/queues/{name}", orders);
  await recorder.session.quietly("POST /v2/queues", {
    token: area.account.token,
    headers: { "content-type": "application/json" },
    body: { queueName: "old" },
  });
  await recorder.show(area, "DELETE /v2/queues/{name}", { path: { name: "old" } });
  recorder.session.destination.release(new URL(area.url("held", "orders")).pathname);
}

/** Flow control. */
export async function showFlowControl(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "flow");
  const checkout = { path: { key: "checkout" } };
  await area.ask("POST", area.publishTo("held", "checkout"), {
    headers: {
      "Svc-Flow-Control-Key": "checkout",
      "Svc-Flow-Control-Value": "parallelism=3, rate=100, period=1d",
    },
  });
  await recorder.session.destination.until(new URL(area.url("held", "checkout")).pathname, 1);
  await recorder.show(area, "GET /v2/flowControl/{key}/holders", checkout);
  await recorder.show(area, "GET /v2/flowControl");
  await recorder.show(area, "GET /v2/flowControl/{key}", checkout);
  await recorder.show(area, "GET /v2/globalParallelism");
  await recorder.show(area, "POST /v2/flowControl/{key}/pause", checkout);
  await recorder.show(area, "POST /v2/flowControl/{key}/resume", checkout);
  await recorder.show(area, "POST /v2/flowControl/{key}/pin", {
    ...checkout,
    body: { parallelism: 5, rate: 50, period: 60 },
  });
  await recorder.show(area, "POST /v2/flowControl/{key}/unpin", {
    ...checkout,
    body: { parallelism: true, rate: true },
  });
  await recorder.show(area, "POST /v2/flowControl/{key}/resetRate", checkout);
  await recorder.show(area, "POST /v2/flowControl/{key}/reset", checkout);
  recorder.session.destination.release(new URL(area.url("held", "checkout")).pathname);
}

/** Schedules. */
export async function showSchedules(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "schedules");
  const report = { path: { scheduleId: "daily-report" } };
  await recorder.show(area, "POST /v2/schedules/{destination}", {
    path: { destination: area.url("200", "report") },
    headers: { "Svc-Cron": "CRON_TZ=Europe/Berlin 0 9 * * 1-5", "Svc-Schedule-Id": "daily-report" },
    body: { kind: "daily" },
  });
  await recorder.show(area, "GET /v2/schedules");
  await recorder.show(area, "GET /v2/schedules/{scheduleId}", report);
  await recorder.show(area, "PATCH /v2/schedules/{scheduleId}", {
    ...report,
    body: { settings: { "Svc-Retries": "5" } },
  });
  await recorder.show(area, "POST /v2/schedules/{scheduleId}/run", report);
  for (const method of ["PATCH", "POST"])
    for (const change of ["pause", "resume"])
      await recorder.show(area, `${method} /v2/schedules/{scheduleId}/${change}`, report);
  await recorder.show(area, "DELETE /v2/schedules/{scheduleId}", report);
}
