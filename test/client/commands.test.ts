import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectDone, startCommand, startServer } from "./startCommand.ts";
import { developmentToken, startDestination, temporaryFolder } from "../server/waypost.ts";

const ids = (value: Record<string, unknown>, list: string, name: string): unknown[] =>
  (value[list] as Record<string, unknown>[]).map((row) => row[name]);

describe("messages", () => {
  test("are published, listed, explained, sent now and cancelled", async () => {
    const { run, runJson } = await startServer();
    const destination = await startDestination();
    const { messageId } = await runJson(
      ...["publish", `${destination.url}/order?item=1`, "--body", "tea", "--delay", "1h"],
      ...["--label", "shop", "-H", "X-Kind: order", "--content-type", "text/plain"],
    );
    const id = String(messageId);
    expect(ids(await runJson("messages"), "messages", "messageId")).toEqual([id]);
    expect(ids(await runJson("messages", "list", "--label", "other"), "messages", "messageId")).toEqual([]);
    expect((await expectDone(run, "messages", "list", "--state", "pending")).out).toMatch(
      new RegExp(`^MESSAGE .*WAITING FOR\n${id}  pending .*shop .*due at `),
    );
    expect((await expectDone(run, "messages", "why", id)).out).toMatch(/^due at /);
    const shown = (await expectDone(run, "messages", "get", id)).out;
    expect(shown).toContain("tea");
    expect(shown).toContain(`${destination.url}/order?item=1`);
    expect((await expectDone(run, "messages", "send-now", id)).out).toBe(`${id} is due now\n`);
    await destination.until((arrivals) => arrivals.length === 1);
    expect(destination.arrivals[0]).toMatchObject({ path: "/order?item=1", headers: { "x-kind": "order" } });
    expect(destination.arrivals[0]?.body.toString()).toBe("tea");
    await expect.poll(async () => (await run("messages", "why", id)).out).toMatch(/^delivered /);
    const later = String((await runJson("publish", destination.url, "--delay", "1h"))["messageId"]);
    expect((await expectDone(run, "messages", "cancel", later)).out).toBe(`${later} cancelled\n`);
  });

  test("are sent with a header as often as it is given, and never with two values of a setting", async () => {
    const { run, runJson } = await startServer();
    const destination = await startDestination();
    await runJson("publish", destination.url, "-H", "X-A: 1", "-H", "x-a: 2");
    await destination.until((arrivals) => arrivals.length === 1);
    expect(destination.arrivals[0]?.headers["x-a"]).toBe("1, 2");
    expect(await run("publish", destination.url, "--retries", "1", "-H", "Svc-Retries: 2")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/retries/i),
    });
  });

  test("a body is read from a file and from the input", async () => {
    const { server, runJson } = await startServer();
    const destination = await startDestination();
    const file = join(temporaryFolder(), "body");
    const body = Buffer.from([0, 1, 255]);
    writeFileSync(file, body);
    await runJson("publish", destination.url, "--body-file", file);
    const environment = { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken };
    await startCommand(["publish", destination.url, "--body-file", "-"], environment, "from input").ended;
    await destination.until((arrivals) => arrivals.length === 2);
    const bodies = destination.arrivals.map(({ body }) => body.toString("base64"));
    expect(bodies.toSorted()).toEqual(
      [body, Buffer.from("from input")].map((one) => one.toString("base64")).toSorted(),
    );
  });
});

describe("bulk actions", () => {
  test("show what they would do, and do it only with consent", async () => {
    const { run, runJson } = await startServer();
    const destination = await startDestination();
    for (const label of ["a", "a", "b"])
      await runJson("publish", destination.url, "--delay", "1h", "--label", label);
    const asked = await run("messages", "cancel", "--label", "a");
    expect(asked).toMatchObject({
      code: 2,
      out: "",
      err: expect.stringMatching(/cancel 2 messages, such as msg_.*--yes/),
    });
    expect(await run("messages", "cancel")).toMatchObject({ code: 2, err: expect.stringContaining("--all") });
    expect(await run("messages", "cancel", "--all", "--label", "a")).toMatchObject({ code: 2 });
    expect((await expectDone(run, "messages", "cancel", "--all", "--dry-run")).out).toMatch(
      /^would cancel 3 messages/,
    );
    expect((await runJson("messages"))["total"]).toBe(3);
    const job = await runJson("messages", "cancel", "--label", "a", "--yes");
    expect(job).toMatchObject({ state: "done", total: 2, done: 2, failed: 0 });
    expect((await runJson("messages"))["total"]).toBe(1);
    expect((await expectDone(run, "messages", "cancel", "--label", "a", "--yes")).out).toContain(
      "nothing was changed",
    );
    expect(ids(await runJson("jobs"), "jobs", "jobId")).toEqual([job["jobId"]]);
  });

  test("with ids change nothing else", async () => {
    const { run, runJson } = await startServer();
    const destination = await startDestination();
    const messages: string[] = [];
    for (let n = 0; n < 3; n++)
      messages.push(String((await runJson("publish", destination.url, "--delay", "1h"))["messageId"]));
    const [first = "", second = ""] = messages;
    expect((await expectDone(run, "messages", "cancel", "lost", "gone", "--yes")).out).toContain(
      "nothing was changed",
    );
    expect(await run("messages", "cancel", first, second)).toMatchObject({
      code: 2,
      err: expect.stringContaining("cancel 2 messages"),
    });
    expect(await run("messages", "cancel", first, "--no-wait")).toMatchObject({
      code: 2,
      err: expect.stringContaining("cancel 1 message,"),
    });
    expect((await runJson("messages", "list", "--limit", "0"))["total"]).toBe(3);
    expect((await expectDone(run, "messages", "--limit", "0")).out).toBe(
      "0 of 3 shown; --limit shows more\n",
    );
    expect((await expectDone(run, "messages", "cancel", first, "--no-wait", "--yes")).out).toMatch(/^job_/);
    await expect.poll(async () => (await runJson("messages"))["total"]).toBe(2);
  });

  test("continue when the command is interrupted, and can be stopped", { tags: "long" }, async () => {
    const { server, run, runJson } = await startServer();
    const destination = await startDestination();
    for (let n = 0; n < 20; n++) await runJson("publish", destination.url, "--delay", "1h");
    const environment = { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken };
    const slow = startCommand(["messages", "cancel", "--all", "--yes", "--rate", "1"], environment);
    await expect.poll(async () => ((await runJson("jobs"))["jobs"] as unknown[]).length).toBe(1);
    const id = String(ids(await runJson("jobs"), "jobs", "jobId")[0]);
    // The command listens for the signal from its first look at the job.
    await expect.poll(async () => (await runJson("jobs", "get", id))["done"]).toBeGreaterThan(0);
    slow.kill("SIGINT");
    expect(await slow.ended).toMatchObject({
      code: 130,
      err: expect.stringContaining(`waypost jobs stop ${id}`),
    });
    expect(await runJson("jobs", "get", id)).toMatchObject({ state: "running" });
    expect(await runJson("jobs", "stop", id)).toMatchObject({ state: "stopped" });
    expect(await run("jobs", "wait", id)).toMatchObject({
      code: 1,
      err: expect.stringContaining("it is stopped"),
    });
  });
});

describe("dead letters", () => {
  test("are grouped, shown, replayed, retried and deleted", async () => {
    const { run, runJson } = await startServer();
    let status = 500;
    const destination = await startDestination(() => ({ status, body: "no tea" }));
    for (let n = 0; n < 3; n++)
      await runJson(
        "publish",
        `${destination.url}/old`,
        "--retries",
        "0",
        "--label",
        "tea",
        "--body",
        `order ${n}`,
      );
    await expect.poll(async () => ((await runJson("dlq"))["messages"] as unknown[]).length).toBe(3);
    expect(await runJson("dlq", "groups")).toMatchObject({ groups: [{ count: 3, responseStatus: 500 }] });
    expect((await expectDone(run, "dlq")).out.split("\n")[0]).toMatch(/^DEAD LETTER +URL +ERROR +LABELS/);
    const [first = "", second = ""] = ids(await runJson("dlq"), "messages", "dlqId").map(String);
    expect((await expectDone(run, "dlq", "get", first)).out).toContain("no tea");
    status = 200;
    const replay = await runJson("dlq", "replay", first, "--url", `${destination.url}/new`, "--body", "cake");
    expect(replay["messageId"]).toMatch(/^msg_/);
    await destination.until((arrivals) =>
      arrivals.some(({ path, body }) => path === "/new" && String(body) === "cake"),
    );
    expect((await expectDone(run, "dlq", "retry", second)).out).toMatch(new RegExp(`^${second} became msg_`));
    expect((await expectDone(run, "dlq", "delete", first)).out).toBe(`${first} deleted\n`);
    expect(await runJson("dlq", "retry", "--label", "tea", "--yes", "--canary", "1")).toMatchObject({
      state: "done",
    });
    expect((await runJson("dlq"))["messages"]).toEqual([]);
  });
});

describe("runs", () => {
  test("are triggered, listed, explained, resumed, restarted and cancelled", async () => {
    const { run, runJson } = await startServer();
    const destination = await startDestination(() => ({ status: 500, body: "not today" }));
    const url = `${destination.url}/workflow`;
    const { workflowRunId } = await runJson("trigger", url, "--retries", "0", "--label", "daily");
    const id = String(workflowRunId);
    await expect.poll(async () => (await run("runs", "why", id)).out).toContain("dead letter");
    expect((await expectDone(run, "runs")).out).toMatch(new RegExp(`\n${id}  failed  ${url}`));
    expect((await expectDone(run, "runs", "get", id)).out).toMatch(/state +failed/);
    expect((await expectDone(run, "runs", "resume", id)).out).toMatch(new RegExp(`^${id} became wfr_`));
    expect(await run("runs", "resume", id)).toMatchObject({
      code: 3,
      err: expect.stringContaining("no failed run"),
    });
    await expect
      .poll(async () => (await run("runs", "restart", "--all", "--dry-run")).out)
      .toMatch(/would restart 1/);
    expect(await runJson("runs", "restart", "--label", "daily", "--yes")).toMatchObject({
      state: "done",
      done: 1,
    });
    const waiting = String((await runJson("trigger", url, "--delay", "1h"))["workflowRunId"]);
    expect((await expectDone(run, "runs", "cancel", waiting)).out).toBe(`${waiting} cancelled\n`);
    expect(await runJson("runs", "get", waiting)).toMatchObject({ workflowState: "RUN_CANCELED" });
  });
});

test("an action with ids of runs leaves runs whose ids begin with them", async () => {
  const { run, runJson } = await startServer();
  const destination = await startDestination(() => ({ status: 500 }));
  const started: string[] = [];
  for (const id of ["tea", "tea2", "cake"])
    started.push(
      String((await runJson("trigger", destination.url, "--run-id", id, "--retries", "0"))["workflowRunId"]),
    );
  const [tea = "", longer = "", cake = ""] = started;
  expect(longer.startsWith(tea)).toBe(true);
  await expect
    .poll(async () => (await run("runs", "list", "--state", "RUN_FAILED")).out)
    .toMatch(/(\w+ +failed .*\n){3}/);
  const asPrinted = await expectDone(run, "runs", "list", "--state", "failed", "--state", "running");
  expect(asPrinted.out).toMatch(/(\w+ +failed .*\n){3}/);
  expect((await expectDone(run, "runs", "list", "--state", "success")).out).toBe("no runs\n");
  expect((await expectDone(run, "runs", "restart", tea, cake, "--dry-run")).out).toMatch(
    /^would restart 2 failed runs/,
  );
  expect(await run("runs", "restart", tea, "wfr_none", "--dry-run")).toMatchObject({ code: 3 });
});

describe("logs", () => {
  test("are printed, and followed with each entry once", async () => {
    const { server, run, runJson } = await startServer();
    const destination = await startDestination();
    await runJson("publish", `${destination.url}/first`);
    await expect.poll(async () => (await run("logs")).out).toContain("DELIVERED");
    const environment = { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken };
    const following = startCommand(["logs", "--follow", "--json", "--state", "DELIVERED"], environment);
    await expect.poll(following.out).toContain("/first");
    for (const path of ["second", "third"]) await runJson("publish", `${destination.url}/${path}`);
    await expect.poll(following.out).toContain("/third");
    const entries = following
      .out()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { url: string });
    expect(entries.map(({ url }) => new URL(url).pathname)).toEqual(["/first", "/second", "/third"]);
    server.kill("SIGTERM");
    await expect.poll(following.err).toContain("cannot be reached");
    following.kill("SIGINT");
    expect(await following.ended).toMatchObject({ signal: "SIGINT" });
  });
});

describe("lists", () => {
  test("of what an account has are tables and JSON", async () => {
    const { server, run, runJson } = await startServer();
    const send = (path: string, body: object, headers = {}): Promise<Response> =>
      fetch(`${server.url}${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${developmentToken}`, ...headers },
        body: JSON.stringify(body),
      });
    await send("/v2/queues", { queueName: "parcels", parallelism: 2 });
    await send("/v2/topics/shops/endpoints", {
      endpoints: [{ name: "north", url: "https://example.com/n" }],
    });
    await send("/v2/schedules/https://example.com/daily", {}, { "svc-cron": "0 8 * * *" });
    expect((await expectDone(run, "queues", "pause", "parcels")).out).toBe("parcels paused\n");
    expect((await expectDone(run, "queues")).out).toMatch(/^QUEUE .*\nparcels +0 +2 +paused/);
    expect((await expectDone(run, "groups")).out).toMatch(/\nshops +north/);
    expect((await expectDone(run, "schedules")).out).toMatch(/ 0 8 \* \* \* +https:\/\/example.com\/daily/);
    expect((await expectDone(run, "queues", "holders", "parcels")).out).toBe(
      "0/2 slots held, 0 waiting, paused\n",
    );
    expect((await expectDone(run, "flow-control")).out).toBe("no flow-control keys\n");
    expect((await expectDone(run, "sources")).out).toBe("no sources\n");
    expect((await expectDone(run, "alerts")).out).toBe("no alerts\n");
    expect((await expectDone(run, "hosts")).out).toBe("no deliveries of late\n");
    expect((await expectDone(run, "overview")).out).toMatch(/paused +queues: parcels/);
    expect((await expectDone(run, "stats", "--period", "1h")).out).toMatch(
      /^last 1h +0 messages and retries, 0 of runs, 0 delivered, .*\n(.*\n)*DAY /,
    );
    expect((await expectDone(run, "stats", "--period", "30d")).out).toMatch(/^last 30d /);
    expect(await runJson("overview")).toMatchObject({ paused: { queues: { names: ["parcels"] } } });
    expect(await runJson("queues")).toMatchObject([{ name: "parcels", paused: true }]);
    const [schedule] = (await runJson("schedules")) as unknown as { scheduleId: string }[];
    expect((await expectDone(run, "schedules", "run", schedule?.scheduleId ?? "")).out).toMatch(
      /^msg_\w+ {2}https:\/\/example\.com\/daily\n$/,
    );
  });

  test("say if a pause created what it names", async () => {
    const { run } = await startServer();
    for (const group of ["queues", "flow-control"]) {
      expect((await expectDone(run, group, "pause", "typo")).out).toBe(
        "typo paused; it did not exist, and was created\n",
      );
      expect((await expectDone(run, group, "pause", "typo")).out).toBe("typo paused\n");
      expect((await expectDone(run, group, "resume", "typo")).out).toBe("typo resumed\n");
      expect(await run(group, "resume", "other")).toMatchObject({ code: 3, out: "" });
    }
    expect(await run("schedules", "pause", "other")).toMatchObject({ code: 3, out: "" });
  });

  test("longer than a page are read page by page, up to the limit", { tags: "long" }, async () => {
    const { server, run, runJson } = await startServer();
    const batch = Array.from({ length: 230 }, () => ({
      destination: "https://example.com",
      headers: { "Svc-Delay": "1h" },
    }));
    await fetch(`${server.url}/v2/batch`, {
      method: "POST",
      headers: { authorization: `Bearer ${developmentToken}` },
      body: JSON.stringify(batch),
    });
    const found = ids(await runJson("messages", "--limit", "1000"), "messages", "messageId");
    expect(new Set(found).size).toBe(230);
    expect((await expectDone(run, "messages")).out).toContain("100 of 230 shown; --limit shows more");
    expect(ids(await runJson("messages", "--limit", "150"), "messages", "messageId")).toEqual(
      found.slice(0, 150),
    );
  });

  test("are printed again and again with --watch", async () => {
    const { server } = await startServer();
    const environment = { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken };
    const watching = startCommand(["queues", "--watch", "0.2", "--json"], environment);
    await expect.poll(() => watching.out().split("\n").length).toBeGreaterThan(3);
    watching.kill("SIGINT");
    expect((await watching.ended).out).toMatch(/^(\[\]\n)+$/);
  });
});
