import type { Area } from "../area.ts";
import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

const text = { "content-type": "text/plain" };

/** Settings of a publish, by a name for its destination. `{brand}` is replaced by both brands. */
const settings: Record<string, Record<string, string>> = {
  plain: {},
  get: { "{brand}-Method": "GET" },
  patch: { "{brand}-Method": "PATCH" },
  forward: {
    "{brand}-Forward-X-Mine": "m",
    "{brand}-Forward-Authorization": "Bearer own",
    "{brand}-Forward-User-Agent": "own/1",
  },
  label: { "{brand}-Label": "one, two" },
  delay: { "{brand}-Delay": "1s" },
  "not-before": { "{brand}-Not-Before": "1000000000" },
  retries: { "{brand}-Retries": "2", "{brand}-Retry-Delay": "1000 * (1 + retried)", "{brand}-Timeout": "5s" },
  flow: {
    "{brand}-Flow-Control-Key": "key",
    "{brand}-Flow-Control-Value": "parallelism=3, rate=500, period=1m",
  },
  redact: { "{brand}-Redact-Fields": "body, header[X-Mine]", "{brand}-Forward-X-Mine": "hidden" },
  header: { "{brand}-Header-Forward": "true", "X-Other": "o" },
  "callback-settings": {
    "{brand}-Callback": "{callback}",
    "{brand}-Callback-Method": "PUT",
    "{brand}-Callback-Forward-X-Back": "b",
  },
};

/** Every setting of a publish, in both brands, on the fast path and through the framework. */
export async function recordPublishing(session: Session): Promise<void> {
  const area = await startArea(session, "publish");
  for (const brand of ["Svc", "Upstash"])
    for (const chunked of [false, true])
      for (const [name, headers] of Object.entries(settings)) {
        const label = `${name}.${brand}.${chunked ? "framework" : "fast"}`;
        const given = Object.entries(headers).map(([key, value]) => [
          key.replace("{brand}", brand),
          value.replace("{callback}", area.url("callback", label)),
        ]);
        await area.publish(area.publishTo("200", label), {
          chunked,
          body: `body of ${label}`,
          headers: { ...text, ...(Object.fromEntries(given) as Record<string, string>) },
        });
        if (name === "callback-settings") await area.delivered("callback", label);
      }
  await recordForms(area);
}

/** Other ways to write a publish. */
async function recordForms(area: Area): Promise<void> {
  const { token } = area.account;
  const url = area.url("200", "forms");
  const publish = `/v2/publish/${url}`;
  await area.publish(`${publish}?a=1&svc-retries=1&b=2&upstash-delay=0s&svc-forward-x-query=q`);
  await area.publish(`${publish}/by-query?svc_token=${encodeURIComponent(token)}`, { token: null });
  await area.publish(`${publish}/by-other-query?qstash_token=${encodeURIComponent(token)}`, { token: null });
  await area.publish(`/v2/publish/${encodeURIComponent(`${url}/encoded`)}`);
  await area.publish(`/v2/Publish/${url}/Case//twice?x=%20y`);
  await area.publish(publish, { body: '{"a":"\u00fc"}', headers: { "content-type": "application/json" } });
  await area.publish(publish, {
    body: Buffer.from([0, 1, 2, 0xfe]),
    headers: { "content-type": "application/octet-stream" },
  });
  const once = { headers: { ...text, "Svc-Deduplication-Id": "once" }, body: "once" };
  await area.publish(publish, once);
  await area.publish(publish, once);
  await area.publish(publish, { ...once, chunked: true });
  const content = { headers: { ...text, "Upstash-Content-Based-Deduplication": "true" }, body: "same" };
  await area.publish(publish, content);
  await area.publish(publish, content);
  await area.ask("GET", `/v2/logs?label=one&count=3`);
  await area.ask("GET", `/v2/events?label=two&count=3`);
  await area.ask("GET", `/v2/flowControl/key`);
}

/** Batches, with items of all kinds. */
export async function recordBatches(session: Session): Promise<void> {
  const area = await startArea(session, "batch");
  const json = { "content-type": "application/json" };
  const batch = (items: unknown, more = {}) =>
    area.publish("/v2/batch", {
      headers: json,
      body: JSON.stringify(items),
      ...more,
    });
  await area.json("POST /v2/topics/both/endpoints", {
    endpoints: [
      { name: "a", url: area.url("200", "group-a") },
      { name: "b", url: area.url("200", "group-b") },
    ],
  });
  for (const chunked of [false, true]) {
    const way = chunked ? "framework" : "fast";
    await batch(
      [
        {
          destination: area.url("200", `text.${way}`),
          headers: {
            "svc-forward-x": "1",
            "content-type": "text/plain",
          },
          body: "one",
        },
        {
          destination: area.url("200", `object.${way}`),
          headers: {
            "Upstash-Method": ["PUT"],
          },
          body: { a: [1] },
        },
        { destination: area.url("200", `bare.${way}`), queue: null, body: null, headers: null },
        { destination: "both", headers: { "upstash-forward-y": "2" }, body: "many" },
        { destination: area.url("200", `queue.${way}`), queue: "lane", body: "queued" },
      ],
      { chunked },
    );
    await batch(
      [
        { destination: "nowhere", body: "x" },
        { destination: area.url("200", `good.${way}`), body: "x" },
        { destination: area.url("200", "bad"), headers: { "svc-delay": "soon" } },
      ],
      { chunked },
    );
  }
  await batch([{ destination: "nowhere" }]);
  await batch([{ body: "no destination" }]);
  await batch([]);
  await batch({ destination: area.url("200", "single") });
  await area.ask("POST", "/v2/batch", { headers: json, body: "[{" });
  const same = {
    destination: area.url("200", "same"),
    headers: { "svc-deduplication-id": "same" },
    body: "s",
  };
  await batch([same, same]);
  await area.ask("GET", "/v2/queues/lane");
  await area.ask("GET", "/v2/logs?topicName=both");
}

/** Records all kinds of responses of destinations, with callbacks and failure callbacks. */
export async function recordOutcomes(session: Session): Promise<void> {
  const area = await startArea(session, "outcomes");
  const kinds = ["200", "204", "404", "489", "500", "redirect", "slow", "flaky", "429"];
  for (const brand of ["Svc", "Upstash"])
    for (const kind of kinds) {
      const label = brand;
      const fails = !["200", "204", "flaky", "429"].includes(kind);
      await area.publish(`/v2/publish/${area.url(kind, label)}`, {
        body: `to ${kind}`,
        headers: {
          ...text,
          [`${brand}-Retries`]: fails && kind !== "500" ? "0" : "1",
          [`${brand}-Retry-Delay`]: "100",
          [`${brand}-Callback`]: area.url("callback", `${kind}.${label}`),
          [`${brand}-Callback-Forward-X-Of`]: kind,
          [`${brand}-Failure-Callback`]: area.url("callback", `${kind}.${label}.failure`),
          ...(kind === "slow" ? { [`${brand}-Timeout`]: "1s" } : {}),
          [`${brand}-Label`]: `${kind}-${label}`,
        },
      });
      await area.delivered("callback", `${kind}.${label}`);
      if (fails) await area.delivered("callback", `${kind}.${label}.failure`);
      await area.ask("GET", `/v2/logs?label=${kind}-${label}`);
    }
  await area.publish("/v2/publish/http://127.0.0.1:1/refused", { headers: { "svc-retries": "0" } });
  await area.ask("GET", "/v2/dlq");
  await area.ask("GET", "/v2/dlq?responseStatus=489");
}
