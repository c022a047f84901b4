// @module-tag long
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findFreePort } from "../../freePort.ts";
import { commandsFor } from "../../client/startCommand.ts";
import { findProgram } from "../debianPackage.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "../waypost.ts";

// Pulls, and receivers that report later, behind an nginx that cuts a request after a time, as platforms do.
// `npm run trial:job` runs a job of two hours behind one that cuts after 30 s.

const nginx = findProgram("nginx", { inPackage: "nginx", at: "usr/sbin/nginx", versionFlag: "-v" });
const reason = "nginx is neither on the PATH nor a package that apt-get can download";
const origin = "https://worker.internal";
/** After how many seconds without a byte the proxy cuts a request, and how many seconds a job takes. */
const cutAfter = Number(process.env["TEST_PROXY_SECONDS"] ?? 2);
const jobTime = Number(process.env["TEST_JOB_SECONDS"] ?? 10);

/** Starts an nginx in front of a server. */
async function startProxy(upstream: string): Promise<string> {
  const folder = join(temporaryFolder(), "proxy");
  mkdirSync(folder);
  const port = await findFreePort();
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((name) => `${name}_temp_path ${join(folder, name)};`)
    .join(" ");
  // Otherwise the workers of root run as a user who cannot write to these folders.
  const user = process.getuid?.() === 0 ? "user root;" : "";
  const file = join(folder, "nginx.conf");
  writeFileSync(
    file,
    `${user} daemon off; pid ${join(folder, "pid")}; error_log stderr emerg; events {}
    http {
      access_log off; ${temporary}
      server {
        listen 127.0.0.1:${port};
        location = /is-open { return 204; }
        location / {
          proxy_pass ${upstream};
          proxy_http_version 1.1;
          proxy_read_timeout ${cutAfter}s;
          proxy_next_upstream off;
        }
      }
    }`,
  );
  const child = spawn(nginx ?? "", ["-p", folder, "-c", file, "-e", "stderr"], { stdio: "ignore" });
  onTestFinished(() => void child.kill("SIGTERM"));
  const url = `http://127.0.0.1:${port}`;
  const isOpen = (): Promise<boolean> =>
    fetch(`${url}/is-open`).then(
      () => true,
      () => false,
    );
  await expect.poll(isOpen).toBe(true);
  return url;
}

async function ask(base: string, what: string, { headers, body }: { headers?: object; body?: unknown } = {}) {
  const [method = "", path = ""] = what.split(" ");
  const response = await fetch(`${base}${path}`, {
    method,
    headers: { authorization: `Bearer ${developmentToken}`, ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json") ?? false;
  return { status: response.status, body: (isJson ? JSON.parse(text) : {}) as Record<string, unknown> };
}

const readEvents = async (server: string, id: string, state: string) =>
  (await ask(server, `GET /v2/events?messageId=${id}&state=${state}`)).body["events"];

async function untilState(server: string, id: string, state: string): Promise<void> {
  await expect.poll(async () => (await ask(server, `GET /v2/messages/${id}`)).body["state"]).toBe(state);
}

test("a pull that the proxy cuts gets 504, and leases nothing; the next one gets the message, once", async ({
  skip,
}) => {
  if (nginx === null) skip(reason);
  const server = await startWaypost(["dev", "--port", "0"]);
  expect((await commandsFor(server.url)("pulled", "set", origin)).code).toBe(0);
  const proxy = await startProxy(server.url);
  const pull = (wait: string) => ask(proxy, "POST /v2/pull", { body: { origin, wait, lease: "1h" } });
  expect((await pull("20s")).status).toBe(504);
  const published = await ask(server.url, `POST /v2/publish/${origin}/a`, {
    headers: { "svc-retries": "0" },
  });
  const id = String(published.body["messageId"]);
  await untilState(server.url, id, "held");
  expect(await readEvents(server.url, id, "ACKNOWLEDGING")).toEqual([]);
  const next = await pull("1s");
  const [attempt] = next.body["attempts"] as { attempt: string; messageId: string; headers: object }[];
  expect(attempt).toMatchObject({ messageId: id, headers: { "Svc-Retried": ["0"] } });
  const headers = { "svc-attempt": attempt?.attempt };
  expect(await ask(proxy, "POST /v2/attempts", { headers, body: { outcome: "ok" } })).toMatchObject({
    ...{ status: 200, body: { became: "delivered" } },
  });
  // A wait that is shorter than the time of the proxy ends with an empty list.
  expect(await pull("1s")).toEqual({ status: 200, body: { attempts: [] } });
  expect(await readEvents(server.url, id, "DELIVERED")).toHaveLength(1);
});

test("a message that comes while the proxy cuts pulls is pulled once", async ({ skip }) => {
  if (nginx === null) skip(reason);
  const server = await startWaypost(["dev", "--port", "0"]);
  expect((await commandsFor(server.url)("pulled", "set", origin)).code).toBe(0);
  const proxy = await startProxy(server.url);
  const got: string[] = [];
  let isOver = false;
  const work = async (): Promise<void> => {
    while (!isOver) {
      const { status, body } = await ask(proxy, "POST /v2/pull", { body: { origin, wait: "20s", max: 5 } });
      expect([200, 504]).toContain(status);
      for (const { attempt, messageId } of (body["attempts"] ?? []) as {
        attempt: string;
        messageId: string;
      }[]) {
        got.push(messageId);
        await ask(proxy, "POST /v2/attempts", {
          headers: { "svc-attempt": attempt },
          body: { outcome: "ok" },
        });
      }
    }
  };
  const workers = [work(), work()];
  const ids: string[] = [];
  // Messages come at all moments of the time of the proxy, also when it cuts.
  for (let at = 0; at < 12; at++) {
    await new Promise((resolve) => setTimeout(resolve, cutAfter * 1_000 - 300 + at * 50));
    const { body } = await ask(server.url, `POST /v2/publish/${origin}/${at}`);
    ids.push(String(body["messageId"]));
  }
  for (const id of ids) await untilState(server.url, id, "delivered");
  isOver = true;
  await Promise.all(workers);
  expect(got.toSorted()).toEqual(ids.toSorted());
});

const timeout = (jobTime + 600) * 1_000;
test(
  "a job of several times the time of the proxy runs once, and is reported later",
  { timeout },
  async ({ skip }) => {
    if (nginx === null) skip(reason);
    const later = { status: 202, headers: { "svc-ack": "later" } };
    const receiver = await startDestination(() => later);
    const destination = await startProxy(receiver.url);
    const server = await startWaypost(["dev", "--port", "0"]);
    const proxy = await startProxy(server.url);
    const headers = { "svc-ack-timeout": `${2 * cutAfter}s`, "svc-retry-delay": "100" };
    const { body } = await ask(proxy, `POST /v2/publish/${destination}/render`, { headers });
    const id = String(body["messageId"]);
    await receiver.until((arrivals) => arrivals.length === 1);
    const shown = { "svc-attempt": String(receiver.arrivals[0]?.headers["svc-attempt"]) };
    const report = (what: object) => ask(proxy, "POST /v2/attempts", { headers: shown, body: what });
    for (let worked = 0; worked < jobTime; worked += cutAfter) {
      await new Promise((resolve) => setTimeout(resolve, cutAfter * 1_000));
      expect(await report({ extend: `${2 * cutAfter}s` })).toMatchObject({ status: 200 });
    }
    expect(await report({ outcome: "ok" })).toMatchObject({ status: 200, body: { became: "delivered" } });
    expect(receiver.arrivals).toHaveLength(1);
    expect(await readEvents(server.url, id, "ERROR")).toEqual([]);
  },
);
