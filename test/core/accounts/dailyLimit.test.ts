import { beforeEach, describe, expect, test } from "vitest";
import type { RunPost } from "../../../src/core/model/message.ts";
import type { PublishResult } from "../../../src/core/commands/publish.ts";
import type { Terms } from "../../../src/core/model/accountTerms.ts";
import { CommandRunner, makeInput, noon } from "../commandRunner.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

function grant(terms: Terms): void {
  const { accounts } = broker.memory.tables;
  for (const [key, account] of accounts) accounts.set(key, { ...account, ...terms });
}

const limited = (soft: number, hard: number): void => grant({ limits: { requestsPerDay: soft, requestsPerDayHard: hard } });
const publish = (count: number) =>
  broker.run("publish", { account: "acme", inputs: Array.from({ length: count }, (_, index) => makeInput({ labels: [`${index}`] })) });
const taken = (results: readonly PublishResult[]): number => results.filter((result) => !("refused" in result)).length;
const dayCount = () => broker.memory.tables.dayCounts.get("acme");
/** 2 January 2026, midnight. */
const midnight = noon + 12 * 3_600_000;

describe("requests of a day", () => {
  test("are not counted where nothing limits them", async () => {
    const [result] = await publish(1);
    expect(result).not.toHaveProperty("allowance");
    expect(dayCount()).toBeUndefined();
  });

  test("are taken in up to the hard limit, and each one beyond is refused by itself", async () => {
    limited(3, 5);
    const results = await publish(7);
    expect(taken(results)).toBe(5);
    expect(results[4]).toMatchObject({ messageId: expect.any(String), remainingQuota: { limit: 5, remaining: 0, resetAt: midnight } });
    expect(results[5]).toEqual({
      refused: "day-limit-exceeded",
      message:
        'requests: 5 were taken today, and one more was asked for; the limit is 5 in a day, which ends at 00:00 UTC; it is the limit of this account (plan selfHosted): "waypost account limits acme --requests-per-day-hard ..." raises it',
      remainingQuota: { limit: 5, remaining: 0, resetAt: midnight, warning: expect.any(String) },
    });
    expect(dayCount()).toEqual({ account: "acme", day: midnight - 86_400_000, requests: 5 });
  });

  test("are warned of beyond the soft limit, and no sooner", async () => {
    limited(2, 5);
    const warnings = (await publish(4)).map(({ remainingQuota }) => remainingQuota?.warning);
    expect(warnings).toEqual([
      undefined,
      undefined,
      expect.stringMatching(/^requests: 3 were taken today, the limit is 2 in a day; beyond 5 they are refused.*--requests-per-day /),
      expect.stringMatching(/^requests: 4 were taken/),
    ]);
  });

  test("begin anew at midnight in UTC", async () => {
    limited(1, 1);
    broker.now = midnight - 1;
    expect([taken(await publish(1)), taken(await publish(1))]).toEqual([1, 0]);
    broker.now = midnight;
    expect([taken(await publish(1)), taken(await publish(1))]).toEqual([1, 0]);
    // A clock that is put back does not give them back.
    broker.now = midnight - 1;
    expect(taken(await publish(1))).toBe(0);
  });

  test("are of a plan as well", async () => {
    grant({ plan: "free" });
    const [result] = await publish(1);
    expect(result).toMatchObject({ remainingQuota: { limit: 1000, remaining: 999 } });
  });

  test("are not used up by what is refused, or was taken in before", async () => {
    limited(5, 1);
    const inputs = [makeInput({ retries: 1_000_000 }), makeInput({ deduplication: "d" }), makeInput({ deduplication: "d" })];
    const results = await broker.run("publish", { account: "acme", inputs });
    expect(results.map((one) => ("refused" in one ? one.refused : "deduplicated" in one && one.deduplicated))).toEqual([
      "limit-exceeded",
      false,
      true,
    ]);
    expect(results[2]).toMatchObject({ remainingQuota: { remaining: 0 } });
  });

  test("of a URL group are as many as it has endpoints, all or none", async () => {
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

  test("do not count retries, callbacks and the like", async () => {
    limited(1, 1);
    const [result] = await publish(1);
    await broker.settle(result && "messageId" in result ? result.messageId : "", { status: 500 });
    expect(dayCount()?.requests).toBe(1);
  });

  test("nor the other account's", async () => {
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
    const results = await broker.run("publish", { account: "other", inputs: [makeInput(), makeInput(), makeInput()] });
    expect(taken(results)).toBe(2);
  });
});

describe("of workflows", () => {
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
    broker.run("publish", { account: "acme", inputs: posts.map((post) => makeInput({ url: "https://w.example/", post })) });
  const step = (stepId: number): RunPost => ({
    kind: "step",
    runId: "r",
    head: { stepId, stepName: "s", stepType: "Run", concurrent: 1 },
  });

  test("the start is a request, and no step of a run is ever refused", async () => {
    limited(1, 1);
    await send(started("r"));
    await expect(publish(1)).resolves.toMatchObject([{ refused: "day-limit-exceeded" }]);
    await send(step(1));
    await send(step(2));
    expect(dayCount()?.requests).toBe(1);
  });

  test("a start beyond the limit refuses the whole request, and keeps nothing of it", async () => {
    limited(1, 1);
    await expect(send(started("r"), started("s"))).rejects.toThrow("message 2 of 2: requests: 1 were taken today");
    expect(broker.memory.tables.runs.size).toBe(0);
    expect(dayCount()).toBeUndefined();
  });

  test("a run that was started before is answered, whatever is left", async () => {
    limited(1, 1);
    await send(started("r"));
    await expect(send(started("r"))).resolves.toMatchObject([{ deduplicated: true }]);
  });
});
