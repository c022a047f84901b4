import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

const badDestinations = [
  "",
  "not good",
  "ftp://example.com",
  "http://",
  "http://169.254.169.254/",
  "http://10.0.0.1/x",
  "api/llm",
];

/** Requests that are refused, each in the way that its status tells. */
export async function recordErrors(session: Session): Promise<void> {
  const area = await startArea(session, "errors");
  const never = area.url("200", "never");
  const bad: Record<string, string> = {
    "Svc-Method": "FLY",
    "Svc-Delay": "soon",
    "Svc-Not-Before": "tomorrow",
    "Svc-Retries": "-1",
    "Svc-Retry-Delay": "sin(1)",
    "Svc-Timeout": "0s",
    "Svc-Callback": "nowhere",
    "Svc-Failure-Callback": "ftp://x",
    "Svc-Flow-Control-Value": "rate=1",
    "Svc-Redact-Fields": "name",
    "Svc-Content-Based-Deduplication": "maybe",
    "Svc-Header-Forward": "yes",
    "Upstash-Delay": "1x",
    "Upstash-Callback-Retries": "many",
    "Upstash-Nonsense": "1",
  };
  for (const chunked of [false, true]) {
    for (const [name, value] of Object.entries(bad))
      await area.ask("POST", `/v2/publish/${never}`, { chunked, headers: { [name]: value } });
    for (const destination of badDestinations)
      await area.ask("POST", `/v2/publish/${destination.replaceAll(" ", "%20")}`, { chunked });
    for (const token of [null, "wrong", area.account.readOnlyToken]) {
      await area.ask("POST", `/v2/publish/${never}`, { chunked, token });
      await area.ask("POST", "/v2/batch", { chunked, token, body: "[]" });
      await area.ask("DELETE", "/v2/messages/msg_unknown", { chunked, token });
    }
  }
  for (const [method, path] of [
    ["PUT", "/v2/queues"],
    ["GET", "/v2/publish"],
    ["GET", `/v2/publish/${never}`],
    ["POST", "/v2/messages/msg_x"],
    ["PATCH", "/v2/batch"],
    ["GET", "/v2/nothing"],
    ["GET", "/"],
    ["GET", "/v3/queues"],
    ["GET", "/v2/queue"],
    ["OPTIONS", "/v2/queues"],
    ["HEAD", "/v2/queues"],
    ["GET", "/v2/messages/msg_unknown"],
    ["DELETE", "/v2/messages/msg_unknown"],
    ["GET", "/v2/workflows/runs/none"],
    ["GET", "/v2/queues/%zz"],
  ] as const)
    await area.ask(method, path);
  for (const type of ["text/xml", "application/x-www-form-urlencoded", "multipart/form-data"])
    await area.ask("POST", "/v2/queues", { headers: { "content-type": type }, body: "queueName=x" });
  await area.ask("POST", "/v2/queues", {
    headers: { "content-type": "application/json", "content-encoding": "gzip" },
    body: "x",
  });
  for (const body of ["{", "[]", "null", '"text"', '{"queueName":1}', '{"queueName":"q","other":1}', ""])
    await area.ask("POST", "/v2/queues", { headers: { "content-type": "application/json" }, body });
  await area.ask("GET", "/v2/queues", { headers: { "x-long": "x".repeat(70_000) } });
  await area.ask("GET", "/v2/audit?action=nonsense");
}

/** Limits of an account: sizes, counts, rates. */
export async function recordLimits(session: Session): Promise<void> {
  const area = await startArea(session, "limits", {
    limits: {
      messageBytes: 1000,
      retries: 2,
      delay: "1h",
      timeout: "10s",
      queues: 1,
      schedules: 1,
      groups: 1,
      endpoints: 1,
      parallelism: 2,
      requestsPerDay: 8,
    },
  });
  const publish = area.publishTo("200", "limited");
  for (const chunked of [false, true]) {
    await area.ask("POST", publish, { chunked, body: "x".repeat(1001) });
    for (const headers of [
      { "Svc-Retries": "3" },
      {
        "Svc-Delay": "2h",
      },
      { "Svc-Timeout": "1m" },
    ] as Record<string, string>[])
      await area.ask("POST", publish, { chunked, headers });
  }
  for (const queueName of ["one", "two"]) await area.json("POST /v2/queues", { queueName, parallelism: 1 });
  await area.json("POST /v2/queues", { queueName: "one", parallelism: 9 });
  for (const id of ["one", "two"])
    await area.ask("POST", `/v2/schedules/${area.url("200", "never")}`, {
      headers: { "Svc-Cron": "0 0 1 1 *", "Svc-Schedule-Id": id },
    });
  const endpoint = (name: string) => ({ endpoints: [{ name, url: area.url("200", name) }] });
  await area.json("POST /v2/topics/one/endpoints", endpoint("a"));
  await area.json("POST /v2/topics/one/endpoints", endpoint("b"));
  await area.json("POST /v2/topics/two/endpoints", endpoint("a"));
  for (let count = 0; count < 10; count++)
    await area.publish(publish, {
      chunked: count % 2 === 1,
      body: String(count),
    });
  // The first requests of a second are answered; of those that follow, the first that is refused is recorded.
  const burst = await startArea(session, "burst", { limits: { requestsPerSecond: 1 } });
  await burst.eventually("/v2/queues", (json) => json?.error !== undefined);
}
