import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, Receiver, startDevServer } from "@upstash/qstash";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { developmentToken, startWaypost, temporaryFolder } from "../server/waypost.ts";
import { accounts } from "./accounts.ts";
import { callbacks } from "./callbacks.ts";
import { deadLetters } from "./deadLetters.ts";
import { flowControl } from "./flowControl.ts";
import { groups } from "./groups.ts";
import type { ClientTestServer } from "./clientTestServer.ts";
import { startClientTestServer, startVerifyingDestination } from "./clientTestServer.ts";
import { log } from "./log.ts";
import { messages } from "./messages.ts";
import type { Methods } from "./methods.ts";
import { watchMethods } from "./methods.ts";
import { publishing } from "./publishing.ts";
import { queues } from "./queues.ts";
import { schedules } from "./schedules.ts";

/** Methods of the client that are not used below, and why. */
const unavailable: Readonly<Record<string, string>> = {
  "client.workflow": "see workflowRuns.ts",
  "workflow.cancel": "see workflowRuns.ts",
  "client.chat": "this server calls no language models",
  "chat.create": "this server calls no language models",
  "chat.createThirdParty": "this server calls no language models",
  "chat.prompt": "this server calls no language models",
  "chat.getAuthorizationToken": "this server calls no language models",
};

/** The tests of each part of the client. `createUser` creates a user with a new account. */
const suites = {
  publish: publishing,
  callbacks,
  messages,
  "dead letters": deadLetters,
  log,
  "URL groups": groups,
  queues,
  "flow control": flowControl,
  schedules,
  accounts,
};

/** The published client, unmodified, against the whole server on each of its stores. */
describe("on SQLite", () => {
  describeClientOn("SQLite");
});
describe("on PostgreSQL", { tags: "long" }, () => {
  describeClientOn("PostgreSQL");
});

function describeClientOn(store: "SQLite" | "PostgreSQL"): void {
  let house: ClientTestServer;
  let methods: Methods;

  beforeAll(async () => {
    methods = watchMethods();
    // The client writes every refusal to the console.
    vi.spyOn(console, "error").mockReturnValue(undefined);
    house = await startClientTestServer(store);
  });

  afterAll(async () => {
    methods.unwatch();
    vi.restoreAllMocks();
    await house.close();
  });

  const arrive = () => house.createUser();
  describe.each(Object.entries(suites))("%s", (_, suite) => {
    suite(arrive);
  });

  describe("the client as a whole", () => {
    test("has no untested method except those that are tested elsewhere or unavailable here", () => {
      expect(methods.offered).toEqual(
        expect.arrayContaining(["client.publish", "urlGroups.get", "queue.upsert", "receiver.verify"]),
      );
      expect(methods.offered.filter((name) => !methods.answered.has(name)).toSorted()).toEqual(
        Object.keys(unavailable).toSorted(),
      );
    });
  });
}

/** This Receiver has the well-known development keys. */
const receiver = new Receiver({ devMode: true });

describe("development mode", () => {
  test("a client in development mode finds the server, and the Receiver knows its keys", async () => {
    const server = await startWaypost(["dev", "--port", "0"]);
    const destination = await startVerifyingDestination({ receiver });
    vi.stubEnv("QSTASH_DEV_PORT", new URL(server.url).port);
    vi.stubEnv("QSTASH_DEV", "1");
    onTestFinished(() => void vi.unstubAllEnvs());
    await startDevServer();
    const { messageId } = await new Client().publish({ url: `${destination.url}/dev`, body: "work" });
    expect(await destination.first()).toMatchObject({
      path: "/dev",
      headers: { "upstash-message-id": messageId },
    });
  });
});

test("schedules fire once at the full minute, and their messages name them", async () => {
  // The server's clock stands still 0.5 s before the full minute until this file exists.
  const go = join(temporaryFolder(), "go");
  const server = await startWaypost(["dev", "--port", "0"], {
    NODE_OPTIONS: standingClock({ second: 59.5, until: go }),
  });
  const client = new Client({ baseUrl: server.url, token: developmentToken });
  const destination = await startVerifyingDestination({ receiver });
  const at = (path: string): string => `${destination.url}/${path}`;
  const each = { cron: "* * * * *", body: "tock", headers: { "X-Mine": "yes" } };
  const queue = client.queue({ queueName: "line" });
  await queue.upsert({ parallelism: 5 });
  await client.urlGroups.addEndpoints({ name: "group", endpoints: [{ url: at("grouped") }] });
  const paused = await client.schedules.create({ ...each, destination: at("paused") });
  await client.schedules.pause({ schedule: paused.scheduleId });
  const queued = await client.schedules.create({ ...each, destination: at("queued"), queueName: "line" });
  const grouped = await client.schedules.create({ ...each, destination: "group" });
  expect(destination.arrivals).toEqual([]);
  writeFileSync(go, "");

  const arrivals = await destination.until(({ length }) => length === 2);
  expect(arrivals.map(({ path }) => path).toSorted()).toEqual(["/grouped", "/queued"]);
  for (const [path, { scheduleId }] of [["/queued", queued] as const, ["/grouped", grouped] as const]) {
    const arrival = arrivals.find((one) => one.path === path);
    expect(arrival).toMatchObject({
      method: "POST",
      body: Buffer.from("tock"),
      headers: {
        "upstash-schedule-id": scheduleId,
        "upstash-caller-ip": "127.0.0.1",
        "x-mine": "yes",
        "content-type": "application/json",
      },
    });
    const schedule = await client.schedules.get(scheduleId);
    expect(schedule.lastScheduleTime).toBeLessThan(schedule.nextScheduleTime ?? 0);
    const messageId = String(arrival?.headers["upstash-message-id"]);
    expect(schedule.lastScheduleStates).toEqual({
      [messageId]: expect.stringMatching(/^(IN_PROGRESS|SUCCESS)$/),
    });
    expect(await client.messages.get(messageId)).toMatchObject({
      scheduleId,
      ...(path === "/queued" ? { queueName: "line" } : { topicName: "group" }),
    });
    expect((await client.logs({ filter: { scheduleId } })).logs.at(-1)).toMatchObject({
      messageId,
      scheduleId,
      state: "CREATED",
    });
  }
  expect(await queue.get()).toMatchObject({ parallelism: 5 });
});

/**
 * Returns the Node options of a process whose clock stays at this second of the minute until the file
 * exists, and then runs.
 */
function standingClock({ second, until }: { second: number; until: string }): string {
  const at = Math.floor(Date.now() / 60_000) * 60_000 + second * 1000;
  const script = `
    import { existsSync } from "node:fs";
    const real = Date.now;
    let ahead = null;
    Date.now = () => {
      if (ahead === null && existsSync(${JSON.stringify(until)})) ahead = ${at} - real();
      return ahead === null ? ${at} : real() + ahead;
    };`;
  return `--import=data:text/javascript,${encodeURIComponent(script)}`;
}
