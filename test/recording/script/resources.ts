import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

/** URL groups. */
export async function recordGroups(session: Session): Promise<void> {
  const area = await startArea(session, "groups");
  const endpoints = (...names: string[]) => ({
    endpoints: names.map((name) => ({ name, url: area.url("200", name) })),
  });
  await area.ask("GET", "/v2/topics");
  await area.json("POST /v2/topics/orders/endpoints", endpoints("a", "b"));
  await area.json("POST /v2/topics/orders/endpoints", { endpoints: [{ url: area.url("200", "c") }] });
  await area.json("POST /v2/topics/bad%20name/endpoints", endpoints("a"));
  await area.json("POST /v2/topics/orders/endpoints", { endpoints: [] });
  await area.json("POST /v2/topics/orders/endpoints", { endpoints: [{ url: "ftp://example.com" }] });
  await area.ask("GET", "/v2/topics/orders");
  await area.ask("GET", "/v2/topics/none");
  await area.json("PATCH /v2/topics/orders", {
    headers: { "Svc-Retries": "1", "Svc-Forward-X-Group": ["g"] },
  });
  for (const chunked of [false, true]) await area.publish("/v2/publish/orders", { chunked, body: "to all" });
  await area.publish("/v2/enqueue/group-queue/orders", { body: "queued to all" });
  await area.ask("POST", "/v2/publish/none");
  await area.json("DELETE /v2/topics/orders/endpoints", {
    endpoints: [{ name: "b" }, { url: area.url("200", "c") }],
  });
  await area.json("DELETE /v2/topics/none/endpoints", { endpoints: [{ name: "b" }] });
  await area.ask("GET", "/v2/topics/");
  await area.ask("DELETE", "/v2/topics/orders");
  await area.ask("DELETE", "/v2/topics/orders");
}

/** Queues: order, parallelism, pause and resume. */
export async function recordQueues(session: Session): Promise<void> {
  const area = await startArea(session, "queues");
  await area.json("POST /v2/queues", { queueName: "made", parallelism: 3 });
  await area.json("POST /v2/queues/", { queueName: "made", parallelism: 2 });
  await area.json("POST /v2/queues", { queueName: "bad name" });
  await area.json("POST /v2/queues", { queueName: "zero", parallelism: 0 });
  await area.ask("GET", "/v2/queues/made");
  await area.ask("GET", "/v2/queues/none");
  for (const chunked of [false, true])
    for (const brand of ["Svc", "Upstash"])
      await area.publish(`/v2/enqueue/fifo/${area.url("200", "fifo")}`, {
        chunked,
        body: "first",
        headers: { [`${brand}-Retries`]: "0" },
      });
  await area.ask("POST", "/v2/queues/fifo/pause");
  const kept = [];
  for (const body of ["one", "two", "three"])
    kept.push(
      (
        await area.ask("POST", `/v2/enqueue/fifo/${area.url("200", "in-order")}`, {
          body,
        })
      ).json.messageId as string,
    );
  await area.ask("GET", "/v2/queues/fifo");
  await area.ask("GET", `/v2/messages/${kept[1]}`);
  await area.ask("DELETE", `/v2/messages/${kept[1]}`);
  await area.ask("POST", "/v2/queues/fifo/resume");
  await area.delivered("200", "in-order", 2);
  await area.ask("GET", "/v2/queues/fifo");
  await area.ask("POST", "/v2/queues/new/pause");
  await area.ask("GET", "/v2/queues");
  await area.ask("GET", "/v2/logs?queueName=fifo&count=4");
  await area.ask("DELETE", "/v2/queues/made");
  await area.ask("DELETE", "/v2/queues/made");
  await area.ask("POST", `/v2/enqueue/bad%20name/${area.url("200", "never")}`);
}

/** Flow-control keys. */
export async function recordFlowControl(session: Session): Promise<void> {
  const area = await startArea(session, "flow");
  const flow = (value: string) => ({ "Svc-Flow-Control-Key": "a/b", "Svc-Flow-Control-Value": value });
  const key = "/v2/flowControl/a%2Fb";
  await area.publish(area.publishTo("200", "first"), { headers: flow("parallelism=2, rate=100, period=1d") });
  await area.ask("GET", key);
  await area.ask("POST", `${key}/pause`);
  const { json } = await area.ask("POST", area.publishTo("200", "paused"), {
    headers: flow("parallelism=2,rate=100,period=1d"),
  });
  await area.ask("GET", key);
  await area.ask("GET", `/v2/messages/${json.messageId}`);
  await area.ask("POST", `${key}/resume`);
  await area.delivered("200", "paused");
  await area.ask("POST", `${key}/pin?parallelism=5&rate=7&period=60`);
  await area.ask("POST", `${key}/pin?parallelism=none`);
  await area.ask("POST", `${key}/pin`);
  await area.ask("POST", `${key}/resetRate`);
  await area.publish(area.publishTo("200", "pinned"), { headers: flow("parallelism=1") });
  await area.ask("GET", key);
  await area.ask("POST", `${key}/unpin?parallelism=true`);
  await area.ask("GET", key);
  await area.ask("POST", `${key}/unpin?rate=true`);
  await area.ask("POST", `${key}/reset`);
  await area.ask("GET", "/v2/flowControl?search=a");
  await area.ask("GET", "/v2/flowControl");
  await area.ask("GET", "/v2/flowControl/none");
  await area.ask("GET", "/v2/globalParallelism");
  await area.ask("POST", area.publishTo("200", "never"), { headers: { "Svc-Flow-Control-Key": "alone" } });
  await area.ask("POST", area.publishTo("200", "never"), { headers: flow("speed=1") });
}

/** Schedules. */
export async function recordSchedules(session: Session): Promise<void> {
  const area = await startArea(session, "schedules");
  const yearly = "0 0 1 1 *";
  const made = await area.ask("POST", `/v2/schedules/${area.url("200", "made")}`, {
    headers: {
      "content-type": "text/plain",
      "Svc-Cron": yearly,
      "Svc-Forward-X": "y",
      "Svc-Retries": "1",
      "Svc-Callback": area.url("200", "c"),
    },
    body: "scheduled",
  });
  await area.ask("POST", `/v2/schedules/${area.url("200", "named")}`, {
    headers: {
      "Upstash-Cron": `CRON_TZ=Europe/Berlin ${yearly}`,
      "Upstash-Schedule-Id": "mine",
      "Upstash-Queue-Name": "q",
      "Upstash-Delay": "10s",
    },
  });
  await area.ask("POST", `/v2/schedules/${area.url("200", "changed")}`, {
    headers: { "Svc-Cron": yearly, "Svc-Schedule-Id": "mine" },
  });
  for (const headers of [
    {},
    {
      "Svc-Cron": "often",
    },
    { "Svc-Cron": yearly, "Svc-Schedule-Id": "not good" },
  ] as Record<string, string>[])
    await area.ask("POST", `/v2/schedules/${area.url("200", "never")}`, { headers });
  const id = made.json.scheduleId as string;
  await area.ask("GET", `/v2/schedules/${id}`);
  await area.ask("GET", "/v2/schedules/mine");
  await area.ask("GET", "/v2/schedules/none");
  for (const [method, what] of [
    ["PATCH", "pause"],
    ["POST", "resume"],
    ["POST", "pause"],
    ["PATCH", "resume"],
  ] as const) {
    await area.ask(method, `/v2/schedules/mine/${what}`);
    await area.ask("GET", "/v2/schedules/mine");
  }
  await area.ask("POST", "/v2/schedules/none/pause");
  await area.ask("GET", "/v2/schedules");
  await area.ask("DELETE", `/v2/schedules/${id}`);
  await area.ask("DELETE", `/v2/schedules/${id}`);
  await area.ask("DELETE", "/v2/schedules/mine");
  await area.ask("GET", "/v2/schedules/");
}
