// @module-tag long
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { ask as rows, seeEachOther } from "../nodes.ts";
import { readCredentials, startWaypost } from "../waypost.ts";

// When a node is killed, other nodes send its messages long before its leases expire.

test("messages of a killed node are sent by another node long before their leases expire", async () => {
  const calls: { region: string; at: number }[] = [];
  const destination = createServer((request, response) => {
    calls.push({
      region: String(request.headers["upstash-region"] ?? request.headers["svc-region"]),
      at: performance.now(),
    });
    // The first call gets no response.
    if (calls.length > 1) response.end();
  });
  destination.listen(0, "127.0.0.1");
  onTestFinished(() => {
    destination.closeAllConnections();
    destination.close();
  });
  const url = await freshDatabase();
  const args = ["start", "--port", "0", "--database-url", url, "--egress-allow", "127.0.0.0/8"];
  const preload = new URL("./longLease.ts", import.meta.url).href;
  const environment = { NODE_OPTIONS: `--import=${preload}` };
  const start = (region: string) => startWaypost([...args, "--region", region], environment);
  const one = await start("eu-central-1");
  const others = await Promise.all([start("us-east-1"), start("us-east-1")]);
  const credentials = await readCredentials("--database-url", url);
  const [, token = ""] = /WAYPOST_TOKEN="(.*)"/.exec(credentials) ?? [];
  await seeEachOther(url, 3);
  const to = `http://127.0.0.1:${(destination.address() as AddressInfo).port}/`;
  const answer = await fetch(`${one.url}/v2/publish/${to}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "svc-retries": "0" },
  });
  expect(answer.status).toBe(200);
  while (calls.length === 0) await pause(20);
  const [before] = await rows(url, "select due_at as due from messages");
  one.kill("SIGKILL");
  while (calls.length < 2) await pause(50);
  const [now] = await rows(url, "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now");
  expect(Number(before?.due) - Number(now?.now), "left of the lease").toBeGreaterThan(0);
  expect(calls[0]?.region).toBe("EU-CENTRAL-1");
  expect(calls[1]?.region).toBe("US-EAST-1");
  expect(others.length).toBe(2);
  while ((await rows(url, "select 1 from messages")).length > 0) await pause(50);
  const [log] = await rows(url, "select detail from log where states like 'ERROR%'");
  expect(String(log?.detail)).toMatch(/no report: node nod_\w+ ended while it was sending it/);
});
