import { beforeEach, describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import type { Terms } from "../../../src/core/model/accountTerms.ts";
import { callbackTo, makeInput, noCapacity, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const allow = (globalParallelism: number | null): Promise<unknown> =>
  broker.run("changeAccount", { account: "acme", change: { limits: { globalParallelism } } });

const at = (host: string) => ({ url: `https://${host}.example/` });

describe("what an account may have under way", () => {
  test("bounds what is sent to all destinations together; the others wait, in order of arrival", async () => {
    await allow(2);
    await broker.send("a", at("one"));
    await broker.send("b", at("two"));
    await broker.send("c", at("three"));
    await broker.send("d", at("one"));
    expect(await broker.listStarted()).toBe("a b");
    expect(broker.counts("account:")).toEqual([2, 2]);
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("a c");
    expect(await broker.listStarted()).toBe("d");
    await broker.end("d");
    expect(broker.counts("account:")).toEqual([0, 0]);
  });

  test("is that of a plan, too, and touches no other account", async () => {
    const keys = { current: "1", next: "2" };
    const terms: Terms = { plan: "free" };
    await broker.run("createAccount", { id: "b", name: "b", password: "", token: "b", tokenHash: "b", signingKeys: keys, ...terms });
    // To one host each: a host may have two only.
    const inputs = Array.from({ length: 12 }, (_, index) => makeInput({ url: `https://host-${index}.example/` }));
    await broker.run("publish", { account: "b", inputs });
    expect(broker.deliveries).toHaveLength(10);
    await broker.run("publish", { account: "acme", inputs });
    expect(broker.deliveries).toHaveLength(12);
    expect(broker.counts("account:")).toBeNull();
  });

  test("counts callbacks and retries while they are sent, and not while they wait for their time", async () => {
    await allow(1);
    await broker.send("a b", { callback: callbackTo("https://told.example/"), retryDelay: "5000" });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    // The callback of the attempt is younger than b.
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("https://told.example/");
    broker.now += 5 * second;
    expect(await broker.listStarted()).toBe("");
    await broker.end("https://told.example/");
    // The retry is the oldest of those that wait, the callback of b the other one.
    expect(await broker.listStarted()).toBe("a");
  });

  test("gets the place back of who is cancelled while it waits, and of who is while it is sent once that has ended", async () => {
    await allow(1);
    await broker.send("a b c");
    expect(await broker.listStarted()).toBe("a");
    await broker.cancel("b");
    expect(broker.counts("account:")).toEqual([1, 1]);
    await broker.cancel("a");
    expect(await broker.listStarted()).toBe("");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("c");
  });

  test("gets the place back of a node that died, when its lease is over", async () => {
    await allow(1);
    await broker.send("a b");
    expect(await broker.listStarted()).toBe("a");
    broker.node = "nod_b";
    broker.now += 29 * second;
    expect(await broker.listStarted()).toBe("");
    broker.now += second;
    // The line is served before what has come due, and a has to stand in it: it is older than b, and goes first.
    expect(await broker.listStarted()).toMatch(/^[ab]$/);
    expect(broker.counts("account:")).toEqual([1, 1]);
  });

  test("gets back what a node gives back that stops", async () => {
    await allow(1);
    await broker.send("a b");
    expect(await broker.listStarted()).toBe("a");
    await broker.run("returnLeases", { leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }] });
    expect(broker.counts("account:")).toEqual([0, 1]);
    expect(await broker.listStarted()).toMatch(/^[ab]$/);
    expect(broker.counts("account:")?.[0]).toBe(1);
  });
});

describe("a limit that is changed", () => {
  test("lets more go on at once when it is raised, and all when it is taken away", async () => {
    await allow(1);
    await broker.send("a b c d e");
    expect(await broker.listStarted()).toBe("a");
    await allow(3);
    expect(await broker.listStarted()).toBe("b c");
    await allow(null);
    expect(await broker.listStarted()).toBe("d e");
    await broker.end("a b c d e");
    expect(broker.counts("account:")).toEqual([0, 0]);
  });

  test("counts what begins from then on when there was none, and stops nothing that is under way", async () => {
    await broker.send("a b");
    await allow(1);
    await broker.send("c d");
    expect(await broker.listStarted()).toBe("a b c");
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
  });

  test("is forgotten with its counters when nothing has been sent for an hour", async () => {
    await allow(1);
    await broker.send("a");
    await broker.end("a");
    broker.now = noon + 3600 * second;
    await broker.listStarted();
    expect(broker.findLimiter("account:")).toBeUndefined();
  });

  test("that comes with another version of a plan is followed, and nobody looks in vain again and again", async () => {
    await allow(2);
    await broker.send("a b c d");
    expect(await broker.listStarted()).toBe("a b");
    const { accounts } = broker.memory.tables;
    for (const [key, account] of accounts) accounts.set(key, { ...account, limits: { globalParallelism: 1 } });
    await broker.end("a");
    expect(await broker.listStarted()).toBe("");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
  });
});

describe("with other gates", () => {
  test("no more of a key wait before the account than could begin, so that others are not held up by them", async () => {
    await allow(2);
    await broker.send("a b");
    await broker.send("k1 k2 k3 k4", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("x y z");
    expect(await broker.listStarted()).toBe("a b");
    expect([broker.counts("account:"), broker.counts("key:k")]).toEqual([
      [2, 4],
      [0, 3],
    ]);
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("k1 x");
    await broker.end("x");
    expect(await broker.listStarted()).toBe("y");
    await broker.end("y");
    expect(await broker.listStarted()).toBe("z");
    await broker.end("k1");
    expect(await broker.listStarted()).toBe("k2");
  });

  test("a rate is kept by those that waited before the account as well", async () => {
    await allow(1);
    await broker.send("a");
    await broker.send("k1 k2 k3 k4 k5", makeFlowControl("k", { rate: 2, period: 10 * second }));
    await broker.listStarted();
    await allow(10);
    expect(await broker.listStarted()).toBe("k1 k2");
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("k3 k4");
  });

  test("a key that is paused gets those back that wait before the account", async () => {
    await allow(1);
    await broker.send("a");
    await broker.send("k1 k2", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("x");
    expect(await broker.listStarted()).toBe("a");
    await broker.run("pauseLimiter", { account: "acme", id: "key:k" });
    await broker.end("a");
    broker.now += spans.limiterCheck;
    expect(await broker.listStarted()).toBe("x");
    await broker.end("x");
    await broker.run("resumeLimiter", { account: "acme", id: "key:k" });
    expect(await broker.listStarted()).toBe("k1");
  });

  test("a queue keeps its order", async () => {
    await allow(1);
    await broker.send("a");
    await broker.send("q1 q2", { queue: "q" });
    await broker.send("x");
    expect(await broker.listStarted()).toBe("a");
    for (const [ended, next] of [
      ["a", "q1"],
      ["q1", "x"],
      ["x", "q2"],
    ] as const) {
      await broker.end(ended);
      expect(await broker.listStarted()).toBe(next);
    }
  });

  test("who waits for a hand takes no place of its account", async () => {
    await allow(1);
    broker.capacity = noCapacity;
    await broker.send("a", at("one"));
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts("account:")).toBeNull();
    broker.capacity = { ...noCapacity, free: 10, perHost: 10 };
    await broker.send("b", at("two"));
    broker.now += second;
    await broker.run("claim", { limit: 10 });
    expect(broker.counts("account:")?.[0]).toBe(1);
  });
});
