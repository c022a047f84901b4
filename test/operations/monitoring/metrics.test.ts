import { spawnSync } from "node:child_process";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { openUserDatabase } from "../outbox/userDatabase.ts";
import { findProgram } from "../../server/debianPackage.ts";
import type { Process } from "../../server/waypost.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "../../server/waypost.ts";

const home = join(import.meta.dirname, "../../..");
const authorization = `Bearer ${developmentToken}`;
const openMetrics = "application/openmetrics-text;version=1.0.0";

type Figures = Map<string, number>;
type Observed = Process & { metricsUrl: string };

async function start(data: string, flags: readonly string[] = []): Promise<Observed> {
  const server = await startWaypost(["dev", "--port", "0", "--metrics-port", "0", "--data", data, ...flags]);
  return { ...server, metricsUrl: /^metrics at (http:\S+)$/m.exec(server.out())?.[1] ?? "" };
}

const scrapeText = async ({ metricsUrl }: Observed, accept = "text/plain"): Promise<string> =>
  (await fetch(metricsUrl, { headers: { accept } })).text();

/** Returns the samples of a scrape by name and labels. */
function toFigures(text: string): Figures {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.split(" ").at(-1))]));
}

/** Scrapes until these samples have these values, and returns the last scrape. */
async function scrapeUntil(server: Observed, wanted: Readonly<Record<string, number>>): Promise<Figures> {
  for (let tries = 0; ; tries++) {
    const figures = toFigures(await scrapeText(server));
    const seen = Object.fromEntries(Object.keys(wanted).map((name) => [name, figures.get(name)]));
    if (tries > 300) expect(seen).toEqual(wanted);
    if (Object.entries(wanted).every(([name, value]) => figures.get(name) === value)) return figures;
    await pause(100);
  }
}

const publish = async (
  server: Process,
  to: string,
  headers: Record<string, string> = {},
): Promise<{ messageId: string }> => {
  const url = `${server.url}/v2/publish/${to}`;
  const response = await fetch(url, {
    method: "POST",
    headers: { authorization, ...headers },
    body: "hello",
  });
  expect(response.status).toBe(200);
  return (await response.json()) as { messageId: string };
};

/** Does known work: what follows from it is in `results`. */
async function work(server: Process): Promise<void> {
  const destination = await startDestination(({ path }) => ({
    status: path === "/bad" ? 500 : 200,
    headers: path === "/workflow" ? { "Upstash-Workflow-Sdk": "1", "Upstash-Workflow-Sdk-Version": "1" } : {},
  }));
  for (let n = 0; n < 3; n++) await publish(server, `${destination.url}/good`);
  const failing = { "Svc-Retries": "1", "Svc-Retry-Delay": "10" };
  await publish(server, `${destination.url}/bad`, failing);
  await publish(server, `${destination.url}/bad`, {
    ...failing,
    "Svc-Failure-Callback": `${destination.url}/told`,
  });
  await publish(server, `${destination.url}/later`, { "Svc-Delay": "1h" });
  const { messageId } = await publish(server, `${destination.url}/cancelled`, { "Svc-Delay": "1h" });
  await fetch(`${server.url}/v2/messages/${messageId}`, { method: "DELETE", headers: { authorization } });
  const trigger = await fetch(`${server.url}/v2/trigger/${destination.url}/workflow`, {
    method: "POST",
    headers: { authorization },
  });
  const { workflowRunId } = (await trigger.json()) as { workflowRunId: string };
  await destination.until((arrivals) => arrivals.some(({ path }) => path === "/workflow"));
  const finished = await fetch(`${server.url}/v2/workflows/runs/${workflowRunId}?cancel=false`, {
    method: "DELETE",
    headers: { authorization },
    body: "done",
  });
  expect(`${finished.status} ${await finished.text()}`).toMatch(/^200 /);
}

/** The metrics that follow from `work` on a new server. */
const counted = {
  'waypost_messages_published_total{kind="message"}': 7,
  'waypost_messages_published_total{kind="callback"}': 1,
  'waypost_messages_published_total{kind="step"}': 1,
  'waypost_messages_published_total{kind="schedule"}': 0,
  'waypost_messages_finished_total{outcome="delivered"}': 5,
  'waypost_messages_finished_total{outcome="failed"}': 2,
  'waypost_messages_finished_total{outcome="cancelled"}': 1,
  'waypost_delivery_attempts_total{outcome="delivered"}': 5,
  'waypost_delivery_attempts_total{outcome="retry"}': 2,
  'waypost_delivery_attempts_total{outcome="failed"}': 2,
  waypost_delivery_attempt_duration_seconds_count: 9,
  waypost_delivery_lateness_seconds_count: 7,
  waypost_publish_duration_seconds_count: 8,
  'waypost_runs_total{outcome="started"}': 1,
  'waypost_runs_total{outcome="succeeded"}': 1,
  'waypost_steps_total{type="Initial"}': 1,
  'waypost_http_requests_total{route="POST /v2/publish/{destination}",code="200"}': 7,
};

/** The figures of the store after `work`. */
const stored = {
  waypost_dead_letters: 2,
  'waypost_messages{state="pending"}': 1,
  'waypost_messages{state="retrying"}': 0,
  'waypost_messages{state="delivering"}': 0,
  'waypost_messages{state="held"}': 0,
  waypost_runs_active: 0,
  waypost_waiters: 0,
  waypost_oldest_due_age_seconds: 0,
};

test("the figures are those of the work, and those of the store stay true after a crash", async () => {
  const data = temporaryFolder();
  const server = await start(data);
  await work(server);
  const figures = await scrapeUntil(server, { ...counted, ...stored });
  expect(figures.get("waypost_store_commits_total")).toBeGreaterThan(0);
  expect(figures.get("waypost_store_batch_rows_sum")).toBeGreaterThan(20);
  expect(figures.get("waypost_store_bytes")).toBeGreaterThan(0);
  expect(figures.get("waypost_disk_free_bytes")).toBeGreaterThan(0);
  server.kill("SIGKILL");
  await server.ended;

  const next = await start(data);
  const atOnce = toFigures(await scrapeText(next));
  for (const [name, value] of Object.entries(stored)) expect(atOnce.get(name), name).toBe(value);
  expect(atOnce.get('waypost_messages_published_total{kind="message"}')).toBe(0);
});

test("metrics need no token on their own port, and one of the operator on the other", async () => {
  const server = await start(temporaryFolder());
  expect(server.metricsUrl).toContain("http://127.0.0.1:");
  expect((await fetch(server.metricsUrl.replace("/metrics", "/v2/health"))).status).toBe(404);
  expect((await fetch(server.metricsUrl, { method: "POST" })).status).toBe(405);
  const own = await fetch(server.metricsUrl, { headers: { accept: openMetrics } });
  expect(own.headers.get("content-type")).toContain("application/openmetrics-text");
  expect(await own.text()).toMatch(/# TYPE waypost_messages_published counter\n[^]*\n# EOF\n$/);

  expect((await fetch(`${server.url}/metrics`)).status).toBe(401);
  const shared = await fetch(`${server.url}/metrics`, { headers: { authorization } });
  expect(shared.headers.get("content-type")).toContain("text/plain; version=0.0.4");
  expect(await shared.text()).toContain('waypost_build_info{version="');
});

test("the figures of outboxes are those of their databases, and no label has their name", async () => {
  const server = await start(temporaryFolder());
  const none = {
    ...{ waypost_outboxes: 0, waypost_outboxes_failing: 0, waypost_outbox_lag_seconds: 0 },
    ...{ waypost_outbox_rows_waiting: 0, waypost_outbox_rows_rejected: 0 },
  };
  await scrapeUntil(server, none);
  const { sql, url } = await openUserDatabase();
  const ask = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(`${server.url}/v2/${path}`, {
      ...{ method, headers: { authorization } },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()) as { tokenId: string; token: string };
  };
  const { tokenId, token } = await ask("POST", "tokens", { verbs: ["publish"] });
  await ask("PUT", "outboxes/shop-outbox", { databaseUrl: url, token });
  await ask("DELETE", `tokens/${tokenId}`);
  const columns = "id, key, created_at, is_workflow, destination, body, settings, headers";
  await sql.query(`begin;
    select waypost.publish('https://app.example/', 'x') from generate_series(1, 2);
    insert into waypost.outbox_rejected (${columns}, reason)
      select ${columns}, 'no' from waypost.outbox limit 1;
    commit`);
  const figures = await scrapeUntil(server, {
    ...{ waypost_outboxes: 1, waypost_outboxes_failing: 1 },
    ...{ waypost_outbox_rows_waiting: 2, waypost_outbox_rows_rejected: 1 },
  });
  expect(figures.get("waypost_outbox_lag_seconds")).toBeGreaterThan(0);
  expect(await scrapeText(server)).not.toContain("shop-outbox");
  await ask("DELETE", "outboxes/shop-outbox");
  await scrapeUntil(server, none);
});

test("labels have no URL, queue, key or id, not even of hostile requests", async () => {
  const server = await start(temporaryFolder());
  const secret = "token-in-a-path";
  const destination = await startDestination();
  await publish(server, `${destination.url}/${secret}`, {
    "Svc-Flow-Control-Key": secret,
    "Svc-Flow-Control-Value": "parallelism=1",
    "Svc-Label": secret,
  });
  await fetch(`${server.url}/v2/in/${secret}`, { method: "POST" });
  for (const path of [`/${secret}`, `/v2/queues/${secret}`, `/v2/messages/${secret}?a=${secret}`])
    for (const method of ["GET", "BREW"])
      await fetch(`${server.url}${path}`, { method, headers: { authorization } });
  const text = await scrapeText(server);
  expect(text).not.toContain(secret);
  expect(text).not.toContain("BREW");
  expect(toFigures(text).get('waypost_source_calls_total{outcome="rejected"}')).toBe(1);
});

type Dashboard = { panels: { targets?: { expr: string }[] }[] };
type Rules = { groups: { rules: { alert: string; expr: string }[] }[] };

describe("the dashboard and the alert rules", () => {
  const dashboard = JSON.parse(readFileSync(join(home, "deploy/grafana/waypost.json"), "utf8")) as Dashboard;
  const { groups } = parse(readFileSync(join(home, "deploy/alerts.yaml"), "utf8")) as Rules;
  const rules = groups.flatMap((group) => group.rules);

  test("use metrics that a server has", async () => {
    const folder = temporaryFolder();
    const server = await start(join(folder, "data"), ["--replicate", join(folder, "replica")]);
    await publish(server, (await startDestination()).url);
    const post = (path: string) =>
      fetch(`${server.url}${path}`, { method: "POST", headers: { authorization } });
    expect((await post("/v2/queues/stopped/pause")).status).toBe(200);
    // A scrape shows what was found since the one before.
    await scrapeUntil(server, { 'waypost_conditions{kind="queue.paused",level="note"}': 1 });
    const names = new Set([...toFigures(await scrapeText(server)).keys()].map((key) => key.split("{")[0]));
    const panels = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    expect(panels.length).toBeGreaterThan(20);
    for (const expr of [...panels, ...rules.map((rule) => rule.expr)])
      for (const [name] of expr.matchAll(/\b(?:waypost|process|nodejs)_\w+/g))
        expect(names, expr).toContain(name);
  });

  test("combine the figures of the store by max()", () => {
    expect(rules).toHaveLength(16);
    for (const { expr } of rules)
      if (/waypost_(dead_letters|oldest|messages|outbox|runs_active|waiters)/.test(expr))
        expect(expr).toContain("max(");
  });
});

const promtool = findProgram("promtool", {
  inPackage: "prometheus",
  at: "usr/bin/promtool",
  versionFlag: "--version",
});

describe.skipIf(promtool === null)("promtool", () => {
  const run = (args: readonly string[], options: { cwd?: string; input?: string } = {}) => {
    const { status, stdout, stderr } = spawnSync(promtool ?? "", args, { encoding: "utf8", ...options });
    expect(`${status} ${stderr}${stdout}`).toMatch(/^0 /);
    return `${stdout}${stderr}`;
  };

  test("accepts a scrape of a server that has worked", async () => {
    const server = await start(temporaryFolder());
    await work(server);
    const text = await scrapeText(server);
    expect(run(["check", "metrics"], { input: text })).toBe("");
    expect(text).toContain("\nwaypost_ready 1\n");
    const broken = spawnSync(promtool ?? "", ["check", "metrics"], { input: `${text}waypost_held{ 2\n` });
    expect(broken.status).not.toBe(0);
  });

  test("finds that each alert fires for what it is for, and not for healthy values", () => {
    const folder = temporaryFolder();
    copyFileSync(join(home, "deploy/alerts.yaml"), join(folder, "alerts.yaml"));
    copyFileSync(join(import.meta.dirname, "alertCases.yaml"), join(folder, "cases.yaml"));
    expect(run(["check", "rules", "alerts.yaml"], { cwd: folder })).toContain("16 rules found");
    expect(run(["test", "rules", "cases.yaml"], { cwd: folder })).toContain("SUCCESS");
  });
});
