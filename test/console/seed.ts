import { setTimeout as sleep } from "node:timers/promises";
import type { Destinations } from "./destinations.ts";
import { hostileBody } from "./hostile.ts";

/** A server with an account whose token the seed uses. */
export type SeededServer = { url: string; token: string };

type More = { headers?: Record<string, string>; body?: string };

/**
 * Sends a request, which is a method and a path, with the token of the account. Throws if it is refused.
 */
export async function call(server: SeededServer, request: string, more: More = {}): Promise<unknown> {
  const [method = "", path = ""] = request.split(" ");
  const response = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${server.token}`,
      ...(more.body !== undefined && { "content-type": "application/json" }),
      ...more.headers,
    },
    ...(more.body !== undefined && { body: more.body }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === "" ? null : JSON.parse(text);
}

/** Repeats until a condition holds. */
export async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < 3_000; attempt++) {
    if (await holds()) return;
    await sleep(100);
  }
  throw new Error(`${what} did not happen`);
}

/** Fills a server with messages and runs in every state, and with everything that can be configured. */
export async function seed(server: SeededServer, to: Destinations): Promise<void> {
  await configure(server, to);
  await sendMessages(server, to);
  await startRuns(server, to);
  await until("the dead letters", async () => {
    const { messages } = (await call(server, "GET /v2/dlq")) as { messages: unknown[] };
    return messages.length >= 8;
  });
  const action = { action: "messages.cancel", filter: { label: "none" } };
  await call(server, "POST /v2/jobs", { body: JSON.stringify(action) });
}

async function configure(server: SeededServer, to: Destinations): Promise<void> {
  const json = (body: unknown): More => ({ body: JSON.stringify(body) });
  await call(server, "POST /v2/queues", json({ queueName: "parcels", parallelism: 1 }));
  await call(server, "POST /v2/queues", json({ queueName: "returns", parallelism: 3 }));
  await call(server, "POST /v2/queues", json({ queueName: "empty", parallelism: 2 }));
  await call(server, "POST /v2/queues/returns/pause");
  await call(
    server,
    "POST /v2/topics/warehouses/endpoints",
    json({
      endpoints: [
        { name: "east", url: `${to.url}/ok/east` },
        { name: "west", url: `${to.url}/ok/west` },
      ],
    }),
  );
  await call(server, `POST /v2/schedules/${to.url}/ok/report`, {
    headers: { "svc-cron": "30 6 * * 1-5", "svc-schedule-id": "morning-report" },
  });
  const night = { "svc-cron": "CRON_TZ=Europe/Berlin 0 3 * * *", "svc-schedule-id": "night-shift" };
  await call(server, `POST /v2/schedules/${to.url}/ok/night`, { headers: night });
  await call(server, "POST /v2/schedules/night-shift/pause");
  await call(
    server,
    "POST /v2/tokens",
    json({ name: "shop", verbs: ["publish"], destinations: [`${to.url}/*`] }),
  );
  await call(server, "PUT /v2/pulled", json({ origin: "https://worker.internal" }));
  await call(server, "POST /v2/tokens", json({ name: "dashboard", verbs: ["read"], expires: "30d" }));
  await call(
    server,
    "POST /v2/sources",
    json({
      name: "payments",
      destination: `${to.url}/ok/payments`,
      verification: { scheme: "github", secret: "a-secret-of-a-sender" },
    }),
  );
}

async function sendMessages(server: SeededServer, to: Destinations): Promise<void> {
  const publish = (
    path: string,
    headers: Record<string, string> = {},
    body: unknown = { order: "48213", service: "express" },
  ) =>
    call(server, `POST ${path}`, { headers, body: typeof body === "string" ? body : JSON.stringify(body) });
  for (let at = 0; at < 6; at++)
    await publish(`/v2/publish/${to.url}/ok/labels`, { "svc-label": `order-${48_190 + at}` });
  await publish(`/v2/publish/warehouses`);
  await publish(`/v2/publish/${to.url}/ok/later`, { "svc-delay": "2d", "svc-label": "reminder" });
  await publish(`/v2/publish/${to.url}/fail/labels`, {
    "svc-retries": "3",
    "svc-retry-delay": "3600000",
    "svc-label": "order-48190",
  });
  await publish(`/v2/publish/${to.url}/slow/render`, { "svc-timeout": "1h" });
  await publish(`/v2/enqueue/parcels/${to.url}/slow/labels`, {
    "svc-timeout": "1h",
    "svc-label": "order-48213",
  });
  for (let at = 0; at < 4; at++)
    await publish(`/v2/enqueue/parcels/${to.url}/ok/labels`, { "svc-label": `order-${48_214 + at}` });
  for (let at = 0; at < 3; at++) await publish(`/v2/enqueue/returns/${to.url}/ok/returns`);
  const key = { "svc-flow-control-key": "crm", "svc-flow-control-value": "parallelism=2" };
  await publish(`/v2/publish/${to.url}/ok/contacts`, key);
  await call(server, "POST /v2/flowControl/crm/pause");
  for (let at = 0; at < 3; at++) await publish(`/v2/publish/${to.url}/ok/contacts`, key);
  for (let at = 0; at < 5; at++)
    await publish(`/v2/publish/${to.url}/fail/labels`, { "svc-retries": "0", "svc-label": "parcel-977" });
  for (let at = 0; at < 2; at++)
    await publish(`/v2/publish/${to.url}/unknown-sku/orders`, { "svc-retries": "0" });
  await publish(
    `/v2/publish/${to.url}/fail/hostile`,
    { "svc-retries": "0", "svc-label": "hostile" },
    hostileBody,
  );
  const gone = (await publish(`/v2/publish/${to.url}/ok/gone`, { "svc-delay": "1d" })) as {
    messageId: string;
  };
  await call(server, `DELETE /v2/messages/${gone.messageId}`);
}

async function startRuns(server: SeededServer, to: Destinations): Promise<void> {
  const trigger = (id: string, body: object) =>
    call(server, `POST /v2/trigger/${to.url}/workflows/order`, {
      headers: { "svc-workflow-runid": id, "svc-retries": "0", "svc-label": "eu" },
      body: JSON.stringify({ id, ...body }),
    });
  const isIn = (id: string, state: string) => async () => {
    const found = (await call(server, `GET /v2/workflows/logs?workflowRunId=${id}`)) as {
      runs: { workflowState: string }[];
    };
    return found.runs[0]?.workflowState === state;
  };
  to.failsReceipt = false;
  await trigger("order-48201", {});
  await until("the success of a run", isIn("order-48201", "RUN_SUCCESS"));
  to.failsReceipt = true;
  await trigger("order-48213", {});
  await trigger("order-48214", {});
  await until("the failure of a run", isIn("order-48213", "RUN_FAILED"));
  await until("the failure of a run", isIn("order-48214", "RUN_FAILED"));
  await trigger("order-48220", { waits: true });
  await trigger("order-48221", {});
  await call(server, "DELETE /v2/workflows/runs/order-48221");
}
