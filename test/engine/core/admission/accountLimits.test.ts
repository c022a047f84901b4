import { beforeEach, describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Terms } from "../../../../src/engine/core/model/accountTerms.ts";
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

describe("an account's limit of deliveries", () => {
  test("applies to all destinations together; other messages wait, in order of acceptance", async () => {
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

  test("has the outcomes of the deliveries that it counts stored at once", async () => {
    await broker.send("a", at("one"));
    expect(broker.deliveries.map(({ settlesAtOnce }) => settlesAtOnce)).toEqual([undefined]);
    await allow(2);
    await broker.send("b", at("two"));
    expect(broker.deliveries.map(({ settlesAtOnce }) => settlesAtOnce)).toEqual([true]);
  });

  test("can come from a plan, and does not affect other accounts", async () => {
    const keys = { current: "1", next: "2" };
    const terms: Terms = { plan: "free" };
    await broker.run("createAccount", {
      id: "b",
      name: "b",
      password: "",
      token: "b",
      tokenHash: "b",
      signingKeys: keys,
      ...terms,
    });
    // Each message goes to another host, because a host may have only two deliveries.
    const inputs = Array.from({ length: 12 }, (_, index) =>
      makeInput({ url: `https://host-${index}.example/` }),
    );
    await broker.run("publish", { account: "b", inputs });
    expect(broker.deliveries).toHaveLength(10);
    await broker.run("publish", { account: "acme", inputs });
    expect(broker.deliveries).toHaveLength(12);
    expect(broker.counts("account:")).toBeNull();
  });

  test("counts callbacks and retries while they are in flight, not while they wait to be due", async () => {
    await allow(1);
    await broker.send("a b", { callback: callbackTo("https://told.example/"), retryDelay: "5000" });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    // The callback of the attempt was accepted after b.
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("https://told.example/");
    broker.now += 5 * second;
    expect(await broker.listStarted()).toBe("");
    await broker.end("https://told.example/");
    // The retry was accepted first of the waiting messages, and the callback of b last.
    expect(await broker.listStarted()).toBe("a");
  });

  test("frees the place of a cancelled message, once its request has ended", async () => {
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

  test("frees the places of a dead node when its leases expire", async () => {
    await allow(1);
    await broker.send("a b");
    expect(await broker.listStarted()).toBe("a");
    broker.node = "nod_b";
    broker.now += 29 * second;
    expect(await broker.listStarted()).toBe("");
    broker.now += second;
    // The waitlist is served before due messages, and a has to wait in it: a was accepted before b, and goes
    // first.
    expect(await broker.listStarted()).toMatch(/^[ab]$/);
    expect(broker.counts("account:")).toEqual([1, 1]);
  });

  test("frees the places that a node returns when it stops", async () => {
    await allow(1);
    await broker.send("a b");
    expect(await broker.listStarted()).toBe("a");
    await broker.run("returnLeases", {
      leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }],
    });
    expect(broker.counts("account:")).toEqual([0, 1]);
    expect(await broker.listStarted()).toMatch(/^[ab]$/);
    expect(broker.counts("account:")?.[0]).toBe(1);
  });
});

describe("a changed limit", () => {
  test("sends more messages at once if it is raised, and all if it is removed", async () => {
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

  test("counts only later deliveries if there was none, and does not stop those in flight", async () => {
    await broker.send("a b");
    await allow(1);
    await broker.send("c d");
    expect(await broker.listStarted()).toBe("a b c");
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
  });

  test("loses its row when nothing has been sent for an hour", async () => {
    await allow(1);
    await broker.send("a");
    await broker.end("a");
    broker.now = noon + 3600 * second;
    await broker.listStarted();
    expect(broker.findLimiter("account:")).toBeUndefined();
  });

  test("that comes with a new version of a plan applies when the next delivery ends", async () => {
    await allow(2);
    await broker.send("a b c d");
    expect(await broker.listStarted()).toBe("a b");
    const { accounts } = broker.memory.tables;
    for (const [key, account] of accounts)
      accounts.set(key, { ...account, limits: { globalParallelism: 1 } });
    await broker.end("a");
    expect(await broker.listStarted()).toBe("");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
  });
});

describe("with other gates", () => {
  test("messages of a key that wait for the account are no more than could start", async () => {
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

  test("a rate also applies to messages that waited for the account", async () => {
    await allow(1);
    await broker.send("a");
    await broker.send("k1 k2 k3 k4 k5", makeFlowControl("k", { rate: 2, period: 10 * second }));
    await broker.listStarted();
    await allow(10);
    expect(await broker.listStarted()).toBe("k1 k2");
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("k3 k4");
  });

  test("a key whose whole rate is reserved is not checked until a reserved message starts", async () => {
    await allow(1);
    await broker.send("a");
    await broker.send("k1 k2", makeFlowControl("k", { rate: 1, period: 10 * second }));
    // k1 waits for the account and has reserved the rate, so k2 waits for the key.
    expect(broker.findLimiter("key:k")).toMatchObject({ waiting: 1, waitingDownstream: 1, dueAt: null });
    await broker.end("a");
    expect(await broker.listStarted()).toBe("a k1");
    expect(broker.findLimiter("key:k")).toMatchObject({ waiting: 1, dueAt: broker.now + 10 * second });
  });

  test("a paused key gets back its messages that wait for the account", async () => {
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

  test("a message that waits for capacity takes no place of its account", async () => {
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
