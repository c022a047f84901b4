import { operator, startArea } from "../area.ts";
import type { Session } from "../session.ts";

const json = { "content-type": "application/json" };

/** Records tokens with limited rights. */
export async function recordTokens(session: Session): Promise<void> {
  const area = await startArea(session, "tokens");
  const make = async (body: object) => {
    const { json } = await area.json("POST /v2/tokens", body);
    session.keepSecret(json?.token);
    return json as { tokenId?: string; id?: string; token: string };
  };
  const publisher = await make({
    name: "publisher",
    verbs: ["publish"],
    destinations: [`${session.destination.url}/200/*`],
  });
  const enqueuer = await make({ verbs: ["publish"], destinations: ["queue:jobs"] });
  const reader = await make({ name: "reader", verbs: ["read"], expires: "30d" });
  const manager = await make({ verbs: ["manage", "read"] });
  await make({ verbs: ["fly"] });
  await make({});
  await area.ask("GET", "/v2/tokens");
  const id = publisher.tokenId ?? publisher.id;
  await area.ask("GET", `/v2/tokens/${id}`);
  const good = area.publishTo("200", "allowed");
  const bad = area.publishTo("404", "refused");
  for (const chunked of [false, true])
    for (const token of [publisher.token, reader.token, manager.token]) {
      const answer = await area.ask("POST", good, { token, chunked });
      if (answer.json?.messageId) await session.settled(answer.json.messageId, area.account.token);
      await area.ask("POST", bad, { token, chunked });
    }
  await area.ask("POST", `/v2/enqueue/jobs/${area.url("200", "job")}`, { token: enqueuer.token });
  await area.delivered("200", "job");
  await area.ask("GET", "/v2/queues", { token: publisher.token });
  await area.ask("GET", "/v2/queues", { token: reader.token });
  await area.json("POST /v2/queues", { queueName: "managed" }, { token: manager.token });
  await area.json("POST /v2/queues", { queueName: "never" }, { token: area.account.readOnlyToken });
  const made = await area.json("POST /v2/tokens", { verbs: ["manage"] }, { token: manager.token });
  session.keepSecret(made.json?.token);
  await area.ask("DELETE", `/v2/tokens/${id}`);
  await area.ask("DELETE", `/v2/tokens/${id}`);
  await area.ask("POST", good, { token: publisher.token });
  await area.ask("GET", "/v2/audit?count=3");
}

/** The account API in both brands, the operator's requests, statistics. */
export async function recordAccounts(session: Session): Promise<void> {
  const area = await startArea(session, "accounts", { plan: "paid" });
  const { id, password, token } = area.account;
  for (const label of ["a", "b"]) await area.publish(area.publishTo("200", label), { body: label });
  await area.publish(area.publishTo("500", "c"), { headers: { "svc-retries": "0" } });
  const own = { token: null, basic: `${id}:${password}`, headers: json };
  for (const brand of ["svc", "qstash"]) {
    const ask = (method: string, path: string, body: unknown = "") =>
      area.ask(method, `/v2/${brand}/${path}`, {
        ...own,
        body,
      });
    await ask("GET", `user/${id}`);
    await ask("GET", "users");
    await ask("GET", "ipv4");
    await ask("GET", `stats/${id}`);
    await ask("GET", `stats/${id}?period=1h`);
    await ask("GET", `stats/${id}?period=forever`);
    await ask("POST", `set-plan/${id}`, { plan_name: `${brand}_fixed_1m` });
    await ask("PATCH", `update-budget/${id}`, { budget: 50 });
    await ask("PATCH", `update-budget/${id}`, { budget: 5 });
    const switches = [
      "enable-prodpack",
      "disable-prodpack",
      "enable-standard-webhooks",
      "disable-standard-webhooks",
    ];
    for (const what of switches) await ask("POST", `${what}/${id}`);
    await ask("POST", "move-to-team", { [`${brand}_id`]: id, target_team_id: "team" });
    await ask("GET", "user/none");
  }
  await area.ask("GET", `/v2/svc/user/${id}`);
  await area.ask("GET", `/v2/svc/user/${id}`, { token: null, basic: `${id}:wrong` });
  let current = password;
  for (const brand of ["svc", "qstash"]) {
    const basic = `${id}:${current}`;
    const { json } = await area.ask("POST", `/v2/${brand}/rotate-token/${id}`, { ...own, basic });
    session.keepSecret(json.token, json.password, json.read_only_token);
    current = json.password as string;
  }
  await area.ask("GET", "/v2/queues", { token });
  await recordOperator(session);
}

async function recordOperator(session: Session): Promise<void> {
  const area = await startArea(session, "operator");
  const { id, token } = area.account;
  const ask = (method: string, path: string, body: unknown = "") =>
    session.ask("operator", `${method} /v2/admin/accounts${path}`, { ...operator, headers: json, body });
  await session.ask("operator", "GET /v2/admin/accounts?count=1000", {
    ...operator,
    sorted: { list: "accounts", by: "name" },
  });
  await ask("GET", `/${id}`);
  await ask("GET", "/none");
  await ask("POST", "", { name: "operator" });
  await ask("POST", "", { name: "bad", plan: "unknown" });
  await ask("PATCH", `/${id}`, { plan: "free", limits: { retries: 2, delay: "1d" } });
  await ask("PATCH", `/${id}`, { limits: { retries: null } });
  await ask("DELETE", `/${id}`);
  await ask("POST", `/${id}/disable`);
  for (const chunked of [false, true])
    await area.ask("POST", area.publishTo("200", "disabled"), {
      token,
      chunked,
    });
  await area.ask("GET", "/v2/queues");
  await ask("POST", `/${id}/enable`);
  await area.publish(area.publishTo("200", "enabled"));
  await ask("POST", `/${id}/disable`);
  await ask("DELETE", `/${id}`);
  await session.ask("operator", "GET /v2/admin/accounts", { token });
  await session.ask("operator", "GET /v2/admin/accounts", {});
  for (const path of ["/v2/health", "/v2/health?ready=true", "/v2/health/ready", "/v2/readiness"])
    await session.ask("operator", `GET ${path}`);
}
