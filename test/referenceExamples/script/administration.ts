import { operator, startArea } from "../../recording/area.ts";
import { type Recorder, webhookSecret } from "../recorder.ts";

/** The requests of the operator. */
export async function showAdministration(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "bakery", {
    plan: "paid",
    limits: { storageBytes: 20_000 },
  });
  await recorder.show(area, "POST /v2/admin/unhold");
  await recorder.show(area, "POST /v2/admin/accounts", {
    body: { name: "shop", plan: "paid", limits: { retries: 5 } },
  });
  await recorder.show(area, "GET /v2/admin/accounts", {
    // They are in the order of their random ids.
    tidy: ({ accounts }: { accounts: { name: string }[] }) => ({
      accounts: accounts.toSorted((one, other) => (one.name < other.name ? 1 : -1)),
    }),
  });
  const shop = { path: { account: "shop" } };
  await recorder.show(area, "GET /v2/admin/accounts/{account}", shop);
  await recorder.show(area, "PATCH /v2/admin/accounts/{account}", {
    ...shop,
    body: { limits: { delay: "30d", queues: 100 }, allowedHosts: ["*.example.com"] },
  });
  await recorder.show(area, "POST /v2/admin/accounts/{account}/disable", shop);
  await recorder.show(area, "POST /v2/admin/accounts/{account}/enable", shop);
  await recorder.show(area, "GET /v2/admin/nodes");
  await recorder.show(area, "GET /v2/admin/egress");
  await recorder.show(area, "GET /v2/admin/activity");
  await area.ask("POST", area.publishTo("200", "later"), {
    headers: { "Svc-Delay": "1d" },
    body: "x".repeat(18_500),
  });
  await recorder.show(area, "PUT /v2/admin/alerts", {
    body: { url: area.url("200", "alerts"), events: ["storage.low"], secret: webhookSecret },
  });
  await recorder.show(area, "GET /v2/admin/alerts");
  await recorder.show(area, "GET /v2/admin/alerts/log", {
    until: ({ alerts }) => alerts[0]?.state === "sent",
  });
  await recorder.show(area, "DELETE /v2/admin/alerts");
  await recorder.show(area, "GET /v2/admin/audit", { query: { count: 2 } });
  await recorder.session.quietly("POST /v2/admin/accounts/shop/disable", operator);
  await recorder.show(area, "DELETE /v2/admin/accounts/{account}", shop);
}

/** Returns the metrics of messages. Others depend on the machine and on earlier requests. */
const keepCounters = (text: string): string =>
  [...text.split("\n").filter((line) => /waypost_(messages|delivery_attempts)_/.test(line)), "…"].join("\n");

/** The health of the server, and its metrics. */
export async function showHealth(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "health");
  await recorder.show(area, "GET /v2/health");
  await recorder.show(area, "GET /v2/health/ready");
  await recorder.show(area, "GET /v2/readiness");
  await recorder.show(area, "GET /metrics", { tidy: keepCounters });
}

/** The account API in both brands. */
export async function showAccounts(recorder: Recorder): Promise<void> {
  for (const [brand, name] of [
    ["svc", "cafe"],
    ["qstash", "diner"],
  ] as const) {
    const area = await startArea(recorder.session, name);
    const own = { path: { id: area.account.id } };
    await area.publish(area.publishTo("200", "welcome"), { body: "hello" });
    if (brand === "svc") await recorder.show(area, "GET /v2/me");
    await recorder.show(area, `GET /v2/${brand}/user/{id}`, own);
    await recorder.show(area, `GET /v2/${brand}/users`);
    await recorder.show(area, `GET /v2/${brand}/ipv4`);
    await recorder.show(area, `GET /v2/${brand}/stats/{id}`, { ...own, query: { period: "1h" } });
    await recorder.show(area, `POST /v2/${brand}/set-plan/{id}`, { ...own, body: { plan_name: "paid" } });
    await recorder.show(area, `PATCH /v2/${brand}/update-budget/{id}`, { ...own, body: { budget: 50 } });
    for (const what of ["prodpack", "standard-webhooks"])
      for (const change of ["enable", "disable"])
        await recorder.show(area, `POST /v2/${brand}/${change}-${what}/{id}`, own);
    await recorder.show(area, `POST /v2/${brand}/move-to-team`, {
      body: { [`${brand}_id`]: area.account.id, target_team_id: "kitchen" },
    });
    await recorder.show(area, `POST /v2/${brand}/rotate-token/{id}`, own);
  }
}
