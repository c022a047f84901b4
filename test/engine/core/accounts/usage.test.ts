import { beforeEach, describe, expect, test } from "vitest";
import type { RunPost } from "../../../../src/engine/core/model/runPost.ts";
import type { Counts, Usage } from "../../../../src/engine/core/model/counts.ts";
import { countNames } from "../../../../src/engine/core/model/counts.ts";
import {
  bucketSizes,
  carriedBalancesId,
  readBucketStart,
} from "../../../../src/engine/core/accounts/usage.ts";
import { CommandRunner, bytes, callbackTo, makeInput, noon } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const rows = (account = "acme"): Usage[] =>
  [...broker.memory.tables.usage.values()].filter((row) => row.account === account);

/**
 * Returns the counts that are not 0, summed over the largest buckets. `storageQuota.test.ts` covers stored
 * bytes.
 */
function counted(account = "acme"): Partial<Counts> {
  const large = rows(account).filter(({ id }) => id.startsWith("3h/"));
  const sums = countNames.map((name) => [name, large.reduce((sum, row) => sum + row[name], 0)] as const);
  return Object.fromEntries(sums.filter(([name, sum]) => sum !== 0 && name !== "storedBytes"));
}

describe("the usage outside workflows counts", () => {
  test("each accepted message with its bytes, and each attempt", async () => {
    await broker.publish({ body: bytes("four") });
    await broker.publish({ body: bytes("sixsix"), delay: 1000 });
    expect(counted()).toEqual({ messages: 2, bytesIn: 10, bytesOut: 4 });
  });

  test("each retry, the bytes of each attempt, and the outcome", async () => {
    const id = await broker.publish({ body: bytes("four") });
    await broker.settle(id, { status: 500 });
    broker.now += 3_600_000;
    await broker.run("claim", { limit: 10 });
    await broker.settle(id, { status: 200 });
    expect(counted()).toEqual({ messages: 2, bytesIn: 4, bytesOut: 8, delivered: 1 });
  });

  test("each callback, and a dead letter for as long as it exists", async () => {
    const callbacks = {
      callback: callbackTo("https://c.example"),
      failureCallback: callbackTo("https://f.example"),
    };
    const id = await broker.publish({ body: bytes("x"), retries: 0, ...callbacks });
    await broker.settle(id, { status: 500 });
    const out = [...broker.memory.tables.messages.values()].reduce((sum, { size }) => sum + size, 1);
    expect(counted()).toEqual({ messages: 3, bytesIn: 1, bytesOut: out, failed: 1, deadLetters: 1 });
    await broker.run(
      "bulk",
      makeDeletion({
        account: "acme",
        dlqIds: broker.deadLetters.map((one) => one.id),
        logRetention: 1e9,
      }),
    );
    expect(counted()).not.toHaveProperty("deadLetters");
  });

  test("a cancelled message once; if it is being sent, when its request has ended", async () => {
    const sent = await broker.publish({ body: bytes("") });
    const waiting = await broker.publish({ body: bytes(""), delay: 1000 });
    await broker.run("cancel", { account: "acme", messageIds: [sent, waiting] });
    expect(counted()).toEqual({ messages: 2, cancelled: 1 });
    await broker.settle(sent, { status: 200 });
    expect(counted()).toEqual({ messages: 2, cancelled: 2 });
  });

  test("a dead letter that is retried as a new message", async () => {
    const id = await broker.publish({ body: bytes(""), retries: 0 });
    await broker.settle(id, { status: 500, body: bytes("") });
    const dlqIds = broker.deadLetters.map((one) => one.id);
    await broker.run("retryDeadLetters", {
      account: "acme",
      dlqIds: [...dlqIds, ...dlqIds],
      logRetention: 1e9,
      overrides: {},
    });
    expect(counted()).toEqual({ messages: 2, failed: 1 });
  });

  test("nothing that is refused, deduplicated, late or missing", async () => {
    const inputs = [
      makeInput({ retries: 1_000_000 }),
      makeInput({ deduplication: "d" }),
      makeInput({ deduplication: "d" }),
    ];
    const [, one] = await broker.run("publish", { account: "acme", inputs });
    expect(counted()).toEqual({ messages: 1, bytesIn: 10, bytesOut: 5 });
    const id = one && "messageId" in one ? one.messageId : "";
    await broker.settle(id, { attempt: 7 });
    await broker.run("claim", { limit: 10 });
    await broker.run("cancel", { account: "acme", messageIds: ["msg_none"] });
    expect(counted()).toEqual({ messages: 1, bytesIn: 10, bytesOut: 5 });
  });

  test("nothing of a command that fails as a whole", async () => {
    const inputs = [makeInput(), makeInput({ post: { kind: "step", runId: "none", head: null } })];
    await expect(broker.run("publish", { account: "acme", inputs })).rejects.toThrow("no active run");
    expect(rows()).toEqual([]);
  });
});

const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
const start: RunPost = {
  kind: "start",
  runId: "r",
  url: "https://w.example/",
  features,
  origin: "sdk",
  invoker: null,
};
const head = (stepId: number, targetStep?: number) => ({
  stepId,
  stepName: `s${stepId}`,
  stepType: "Run",
  concurrent: targetStep === undefined ? 1 : 2,
  ...(targetStep === undefined ? {} : { targetStep }),
});
const post = (more: Partial<Extract<RunPost, { kind: "step" | "call" }>>): RunPost => ({
  kind: "step",
  runId: "r",
  head: null,
  ...more,
});
const publishForRun = (...posts: RunPost[]) =>
  broker.run("publish", {
    account: "acme",
    inputs: posts.map((one) => makeInput({ url: "https://w.example/", body: bytes("{}"), post: one })),
  });

describe("the usage of workflows counts", () => {
  beforeEach(() => publishForRun(start));

  test("the start of a run and each step", async () => {
    expect(counted()).toMatchObject({ workflowRuns: 1, workflowMessages: 1, bytesIn: 2 });
    await publishForRun(post({ head: head(1) }));
    expect(counted()).toMatchObject({ workflowRuns: 1, workflowMessages: 2, bytesIn: 4 });
    expect(counted()).not.toHaveProperty("messages");
  });

  test("one more message for each parallel step", async () => {
    await publishForRun(post({ head: head(0, 1) }), post({ head: head(0, 2) }));
    await publishForRun(post({ head: head(1) }));
    await publishForRun(post({ head: head(2) }));
    expect(counted()).toMatchObject({ workflowMessages: 5 });
  });

  test("two messages for a call: the request, and its response as a step", async () => {
    const input = makeInput({ url: "https://third.example/", callback: callbackTo("https://w.example/") });
    const [called] = await broker.run("publish", {
      account: "acme",
      inputs: [{ ...input, post: post({ kind: "call", head: head(1) }) }],
    });
    expect(counted()).toMatchObject({ workflowMessages: 2 });
    await broker.settle(called && "messageId" in called ? called.messageId : "", { status: 200 });
    expect(counted()).toMatchObject({ workflowMessages: 3, workflowDelivered: 1 });
  });

  test("the messages that are dropped when the run is cancelled", async () => {
    const sleep = makeInput({ url: "https://w.example/", delay: 1000, post: post({ head: head(1) }) });
    await broker.run("publish", { account: "acme", inputs: [sleep] });
    await broker.run("cancelRuns", { account: "acme", runIds: ["r"] });
    // A message that is being sent may still arrive.
    expect(counted()).toMatchObject({ workflowMessages: 2, workflowCancelled: 1 });
  });

  test("nothing for the start of a run that is already active", async () => {
    await publishForRun(start);
    expect(counted()).toMatchObject({ workflowRuns: 1, workflowMessages: 1 });
  });
});

describe("a bucket", () => {
  test("begins at a whole minute, 12 minutes or 3 hours on each node, with equal counts", async () => {
    broker.now = noon + 13 * 60_000 + 59_999;
    await broker.publish();
    broker.node = "nod_b";
    await broker.publish();
    broker.now++;
    await broker.publish();
    const found = new Map(rows().map(({ id, messages }) => [id, messages]));
    const at = (size: string, time: number, node: string) => `${size}/${time}/${node}`;
    expect(found).toEqual(
      new Map([
        [at("12m", noon + 12 * 60_000, "nod_a"), 1],
        [at("12m", noon + 12 * 60_000, "nod_b"), 2],
        [at("1m", noon + 13 * 60_000, "nod_a"), 1],
        [at("1m", noon + 13 * 60_000, "nod_b"), 1],
        [at("1m", noon + 14 * 60_000, "nod_b"), 1],
        [at("3h", noon, "nod_a"), 1],
        [at("3h", noon, "nod_b"), 2],
      ]),
    );
  });

  test("counts dead letters only if it is one of the largest", async () => {
    await broker.settle(await broker.publish({ retries: 0 }), { status: 500 });
    const found = rows().map(({ id, deadLetters }) => [id.split("/")[0], deadLetters]);
    expect(Object.fromEntries(found)).toEqual({ "1m": 0, "12m": 0, "3h": 1 });
  });

  test("belongs to one account", async () => {
    await broker.run("createAccount", {
      id: "other",
      name: "other",
      password: "",
      token: "o",
      tokenHash: "o",
      signingKeys: { current: "a", next: "b" },
    });
    await broker.publish();
    await broker.run("publish", { account: "other", inputs: [makeInput(), makeInput()] });
    expect([counted().messages, counted("other").messages]).toEqual([1, 2]);
  });

  test("is removed when it has expired and not before, regardless of the clock of the caller", async () => {
    await broker.publish({ delay: 1000 });
    const expire = (now: number) =>
      broker.run("expire", { account: "acme", retention: { log: 1e12, deadLetters: 1e12 }, now, limit: 100 });
    const buckets = () => rows().filter(({ id }) => id !== carriedBalancesId);
    const sizes = () => buckets().map(({ id }) => id.split("/")[0]);
    for (const [size, left] of [
      ["1m", ["12m", "3h"]],
      ["12m", ["3h"]],
      ["3h", []],
    ] as const) {
      broker.now = noon + bucketSizes[size].kept;
      expect(await expire(noon * 2)).toEqual({ removed: 0, more: false });
      broker.now++;
      expect(await expire(noon * 2)).toEqual({ removed: 1, more: false });
      expect(sizes()).toEqual(left);
    }
  });

  test("leaves its count of existing dead letters behind when it is removed", async () => {
    const fail = async () => broker.settle(await broker.publish({ retries: 0 }), { status: 500 });
    const expire = async (days: number) => {
      broker.now += days * 86_400_000;
      await broker.run("expire", {
        account: "acme",
        retention: { log: 1e12, deadLetters: 1e12 },
        now: broker.now,
        limit: 100,
      });
    };
    await fail();
    await fail();
    await expire(20);
    await fail();
    await expire(20);
    expect(rows().find(({ id }) => id === carriedBalancesId)).toMatchObject({ deadLetters: 2, messages: 0 });
    expect(counted()).toMatchObject({ deadLetters: 3 });
    await broker.run(
      "bulk",
      makeDeletion({
        account: "acme",
        dlqIds: broker.deadLetters.map(({ id }) => id),
        logRetention: 1e12,
      }),
    );
    expect(counted()).not.toHaveProperty("deadLetters");
    await expire(40);
    expect(rows()).toMatchObject([{ id: carriedBalancesId, deadLetters: 0 }]);
  });

  test("has its start in its id", () => {
    expect(readBucketStart({ id: "12m/1800000000000/nod_a" })).toBe(1_800_000_000_000);
    expect(readBucketStart({ id: carriedBalancesId })).toBe(0);
  });
});
