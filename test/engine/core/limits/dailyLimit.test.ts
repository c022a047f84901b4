import { beforeEach, describe, expect, test } from "vitest";
import type { RunPost } from "../../../../src/engine/core/model/runPost.ts";
import type { PublishResult } from "../../../../src/engine/core/commands/publish.ts";
import type { Terms } from "../../../../src/engine/core/model/accountTerms.ts";
import { CommandRunner, makeInput, noon } from "../commandRunner.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

function grant(terms: Terms): void {
  const { accounts } = broker.memory.tables;
  for (const [key, account] of accounts) accounts.set(key, { ...account, ...terms });
}

const limited = (soft: number, hard: number): void =>
  grant({ limits: { requestsPerDay: soft, requestsPerDayHard: hard } });
const publish = (count: number) =>
  broker.run("publish", {
    account: "acme",
    inputs: Array.from({ length: count }, (_, index) => makeInput({ labels: [`${index}`] })),
  });
const taken = (results: readonly PublishResult[]): number =>
  results.filter((result) => !("refused" in result)).length;
const dayCount = () => broker.memory.tables.dayCounts.get("acme");
/** 2 January 2026, midnight. */
const midnight = noon + 12 * 3_600_000;

const raise = { remedy: "raise-limit", account: "acme", plan: "selfHosted" };

describe("requests of a day", () => {
  test("are not counted if the account has no daily limit", async () => {
    const [result] = await publish(1);
    expect(result).not.toHaveProperty("allowance");
    expect(dayCount()).toBeUndefined();
  });

  test("are accepted up to the hard limit, and each further message is refused separately", async () => {
    limited(3, 5);
    const results = await publish(7);
    expect(taken(results)).toBe(5);
    expect(results[4]).toMatchObject({
      messageId: expect.any(String),
      remainingQuota: { limit: 5, remaining: 0, resetAt: midnight },
    });
    expect(results[5]).toEqual({
      refused: "day-limit-exceeded",
      message: "requests: 5 made today, 1 more requested; the limit is 5 per day; retry after 00:00 UTC",
      remedy: { ...raise, limit: "requestsPerDayHard" },
      remainingQuota: { limit: 5, remaining: 0, resetAt: midnight, warning: expect.anything() },
    });
    expect(dayCount()).toEqual({ account: "acme", day: midnight - 86_400_000, requests: 5 });
  });

  test("cause a warning above the soft limit, and not below it", async () => {
    limited(2, 5);
    const warnings = (await publish(4)).map(({ remainingQuota }) => remainingQuota?.warning);
    expect(warnings).toEqual([
      undefined,
      undefined,
      {
        message: "requests: 3 made today; the limit is 2 per day, above 5 they are refused",
        remedy: { ...raise, limit: "requestsPerDay" },
      },
      expect.objectContaining({ message: expect.stringMatching(/^requests: 4 made today/) }),
    ]);
  });

  test("restart from zero at midnight UTC", async () => {
    limited(1, 1);
    broker.now = midnight - 1;
    expect([taken(await publish(1)), taken(await publish(1))]).toEqual([1, 0]);
    broker.now = midnight;
    expect([taken(await publish(1)), taken(await publish(1))]).toEqual([1, 0]);
    // A clock that is set back does not restore used requests.
    broker.now = midnight - 1;
    expect(taken(await publish(1))).toBe(0);
  });

  test("are limited by a plan too", async () => {
    grant({ plan: "free" });
    const [result] = await publish(1);
    expect(result).toMatchObject({ remainingQuota: { limit: 1000, remaining: 999 } });
  });

  test("are not used up by refused messages or by duplicates", async () => {
    limited(5, 1);
    const inputs = [
      makeInput({ retries: 1_000_000 }),
      makeInput({ deduplication: "d" }),
      makeInput({ deduplication: "d" }),
    ];
    const results = await broker.run("publish", { account: "acme", inputs });
    expect(
      results.map((one) => ("refused" in one ? one.refused : "deduplicated" in one && one.deduplicated)),
    ).toEqual(["limit-exceeded", false, true]);
    expect(results[2]).toMatchObject({ remainingQuota: { remaining: 0 } });
  });

  test("to a URL group count once per endpoint, and are accepted all or none", async () => {
    const endpoints = ["a", "b"].map((name) => ({ name, url: `https://${name}.example/` }));
    await broker.run("addEndpoints", { account: "acme", name: "g", endpoints });
    limited(5, 3);
    const inputs = [makeInput({ url: "", group: "g" }), makeInput({ url: "", group: "g" }), makeInput()];
    const results = await broker.run("publish", { account: "acme", inputs });
    expect(results).toMatchObject([
      { each: [{}, {}] },
      { refused: "day-limit-exceeded", remainingQuota: { remaining: 1 } },
      { remainingQuota: { remaining: 0 } },
    ]);
  });

  test("do not include retries, callbacks and other consequences", async () => {
    limited(1, 1);
    const [result] = await publish(1);
    await broker.settle(result && "messageId" in result ? result.messageId : "", { status: 500 });
    expect(dayCount()?.requests).toBe(1);
  });

  test("do not include those of another account", async () => {
    limited(1, 1);
    await broker.run("createAccount", {
      id: "other",
      name: "other",
      password: "",
      token: "o",
      tokenHash: "o",
      signingKeys: { current: "a", next: "b" },
      limits: { requestsPerDay: 2, requestsPerDayHard: 2 },
    });
    await publish(1);
    const results = await broker.run("publish", {
      account: "other",
      inputs: [makeInput(), makeInput(), makeInput()],
    });
    expect(taken(results)).toBe(2);
  });
});

describe("requests of workflows", () => {
  const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
  const started = (runId: string): RunPost => ({
    kind: "start",
    runId,
    url: "https://w.example/",
    features,
    origin: "sdk",
    invoker: null,
  });
  const send = (...posts: RunPost[]) =>
    broker.run("publish", {
      account: "acme",
      inputs: posts.map((post) => makeInput({ url: "https://w.example/", post })),
    });
  const step = (stepId: number): RunPost => ({
    kind: "step",
    runId: "r",
    head: { stepId, stepName: "s", stepType: "Run", concurrent: 1 },
  });

  test("count the start of a run, and no step of a run is ever refused", async () => {
    limited(1, 1);
    await send(started("r"));
    await expect(publish(1)).resolves.toMatchObject([{ refused: "day-limit-exceeded" }]);
    await send(step(1));
    await send(step(2));
    expect(dayCount()?.requests).toBe(1);
  });

  test("beyond the limit refuse the whole request, and nothing of it is stored", async () => {
    limited(1, 1);
    await expect(send(started("r"), started("s"))).rejects.toThrow("message 2 of 2: requests: 1 made today");
    expect(broker.memory.tables.runs.size).toBe(0);
    expect(dayCount()).toBeUndefined();
  });

  test("for a run that was started before are answered, even if no requests are left", async () => {
    limited(1, 1);
    await send(started("r"));
    await expect(send(started("r"))).resolves.toMatchObject([{ deduplicated: true }]);
  });
});
