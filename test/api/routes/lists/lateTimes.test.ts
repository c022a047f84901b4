import { describe, expect, test } from "vitest";
import type { TestServer } from "../../testServer.ts";
import { createTestServer } from "../../testServer.ts";
import { failMessage } from "../deadLetters/deadLetters.ts";

/** Times that dead letters and log entries never reach: the last of 13 digits, and those of 14 and 15. */
const lateTimes = ["9999999999999", "10000000000000", "99999999999999", "100000000000000"];

const countLogs = async ({ ask }: TestServer, query: string): Promise<number> =>
  (await ask("GET", `/v2/logs?${query}`)).body.events.length;

const countDeadLetters = async ({ ask }: TestServer, query: string): Promise<number> =>
  (await ask("GET", `/v2/dlq?${query}`)).body.messages.length;

const countDeletions = async ({ ask }: TestServer, query: string): Promise<number> =>
  (await ask("DELETE", `/v2/dlq?dryRun=true&${query}`)).body.count;

const countJobEntries = async ({ ask }: TestServer, query: string): Promise<number> => {
  const filter = Object.fromEntries(new URLSearchParams(query));
  const body = JSON.stringify({ action: "dlq.retry", filter, dryRun: true });
  return (await ask("POST", "/v2/jobs", { body })).body.count;
};

const countUnfinished = async ({ ask }: TestServer, query: string): Promise<number> =>
  (await ask("GET", `/v2/messages?${query}`)).body.messages.length;

const countAudited = async ({ ask }: TestServer, query: string): Promise<number> =>
  (await ask("GET", `/v2/audit?${query}`)).body.entries.length;

describe.each([
  ["logs", countLogs],
  ["dead letters", countDeadLetters],
  ["a bulk deletion", countDeletions],
  ["a job", countJobEntries],
  ["unfinished messages", countUnfinished],
  ["the audit log", countAudited],
])("the times of %s", (_what, count) => {
  test.each(lateTimes)("may end or begin at %s", async (late) => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example", { headers: { "svc-label": "x" } });
    await server.ask("POST", "/v2/publish/https://one.example", { headers: { "svc-delay": "1d" } });
    await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: ["read"] }) });
    const all = await count(server, "fromDate=1");
    expect(all).toBeGreaterThan(0);
    expect(await count(server, `fromDate=1&toDate=${late}`)).toBe(all);
    expect(await count(server, `fromDate=${late}`)).toBe(0);
  });
});

test.each(lateTimes)("the log with a filter may end or begin at %s", async (late) => {
  const server = await createTestServer();
  await failMessage(server, "https://one.example", { headers: { "svc-label": "x" } });
  for (const filter of ["label=x", "host=one.example", "state=ERROR"]) {
    const all = await countLogs(server, filter);
    expect(all, filter).toBeGreaterThan(0);
    expect(await countLogs(server, `${filter}&toDate=${late}`), filter).toBe(all);
    expect(await countLogs(server, `${filter}&fromDate=${late}`), filter).toBe(0);
  }
});
