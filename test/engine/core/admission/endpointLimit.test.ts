import { beforeEach, describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { AccountLimits, Terms } from "../../../../src/engine/core/model/accountTerms.ts";
import { callbackTo, makeInput, noCapacity, noon, ampleCapacity } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const unbound = { globalParallelism: null, parallelism: null };
const allow = (limits: Partial<AccountLimits>): Promise<unknown> =>
  broker.run("changeAccount", { account: "acme", change: { limits: { ...unbound, ...limits } } });

const at = (host: string) => ({ url: `https://${host}/` });
const toOne = "endpoint:https://one/";
const toTwo = "endpoint:https://two/";

describe("an account's limit per endpoint", () => {
  test("applies to each endpoint on all nodes; other messages wait, in order of acceptance", async () => {
    await allow({ parallelism: 2 });
    await broker.send("a b c d", at("one"));
    await broker.send("x y z", at("two"));
    expect(await broker.listStarted()).toBe("a b x y");
    expect([broker.counts(toOne), broker.counts(toTwo)]).toEqual([
      [2, 2],
      [2, 1],
    ]);
    // Another node with all of its capacity free.
    broker.node = "nod_b";
    await broker.send("e", at("one"));
    expect(await broker.listStarted()).toBe("");
    broker.node = "nod_a";
    await broker.end("a");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("b c");
    expect(await broker.listStarted()).toBe("d e");
    await broker.end("d e x y");
    expect(await broker.listStarted()).toBe("z");
    await broker.end("z");
    expect([broker.findLimiter(toOne), broker.findLimiter(toTwo)]).toEqual([undefined, undefined]);
  });

  test.each([
    ["free", 2],
    ["paid", 100],
    ["fixed_1m", 100],
    ["selfHosted", 150],
    [undefined, 150],
  ] as const)("can come from a plan: %s has %d, and another account has its own", async (plan, most) => {
    const keys = { current: "1", next: "2" };
    const terms: Terms = plan ? { plan } : {};
    await broker.run("createAccount", {
      id: "b",
      name: "b",
      password: "",
      token: "b",
      tokenHash: "b",
      signingKeys: keys,
      ...terms,
    });
    const inputs = Array.from({ length: 150 }, () => makeInput(at("one")));
    await broker.run("publish", { account: "b", inputs });
    expect(broker.deliveries).toHaveLength(most);
    await broker.run("publish", { account: "acme", inputs });
    expect(broker.deliveries).toHaveLength(150);
    expect(broker.counts(toOne)).toBeNull();
  });

  test("counts callbacks and retries while they are in flight, not while they wait to be due", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a b", { ...at("one"), callback: callbackTo("https://one/?told"), retryDelay: "5000" });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("https://one/?told");
    broker.now += 5 * second;
    expect(await broker.listStarted()).toBe("");
    await broker.end("https://one/?told");
    expect(await broker.listStarted()).toBe("a");
  });

  test("frees the place of a cancelled message, once its request has ended", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a b c", at("one"));
    expect(await broker.listStarted()).toBe("a");
    await broker.cancel("b");
    expect(broker.counts(toOne)).toEqual([1, 1]);
    await broker.cancel("a");
    expect(await broker.listStarted()).toBe("");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("c");
  });

  test("frees the places of a dead node when its leases expire, and of a stopping node at once", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a b", at("one"));
    expect(await broker.listStarted()).toBe("a");
    broker.node = "nod_b";
    broker.now += 29 * second;
    expect(await broker.listStarted()).toBe("");
    broker.now += second;
    const first = await broker.listStarted();
    expect(first).toMatch(/^[ab]$/);
    expect(broker.counts(toOne)).toEqual([1, 1]);
    await broker.run("returnLeases", {
      leases: [
        {
          account: "acme",
          messageId: broker.id(first),
          attempt: broker.state(broker.id(first))?.attempts ?? 0,
        },
      ],
    });
    expect(broker.counts(toOne)).toEqual([0, 1]);
    expect(await broker.listStarted()).toMatch(/^[ab]$/);
    expect(broker.counts(toOne)).toEqual([1, 1]);
  });

  test("uses no capacity, and a message that waits for capacity takes no place", async () => {
    await allow({ parallelism: 1 });
    broker.capacity = noCapacity;
    await broker.send("a b", at("one"));
    expect(await broker.listStarted()).toBe("");
    expect([broker.state(broker.id("a"))?.waitlist, broker.counts(toOne)]).toEqual(["capacity:one", null]);
    broker.capacity = ampleCapacity;
    broker.now += spans.waitlistCheck;
    await broker.run("claim", { limit: 10 });
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts(toOne)).toEqual([1, 1]);
  });
});

describe("a changed limit per endpoint", () => {
  test("sends more messages within a second if it is raised, and all if it is removed", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a b c d e", at("one"));
    expect(await broker.listStarted()).toBe("a");
    await allow({ parallelism: 3 });
    broker.now += spans.waitlistCheck;
    expect(await broker.listStarted()).toBe("b c");
    await allow({});
    broker.now += spans.waitlistCheck;
    expect(await broker.listStarted()).toBe("d e");
    await broker.end("a b c d e");
    expect(broker.findLimiter(toOne)).toBeUndefined();
  });

  test("applies from the next delivery on if it is lowered", async () => {
    await allow({ parallelism: 3 });
    await broker.send("a b c d e", at("one"));
    expect(await broker.listStarted()).toBe("a b c");
    await allow({ parallelism: 1 });
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts(toOne)).toEqual([1, 2]);
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
  });

  test("counts only later deliveries if there was none, and does not stop those in flight", async () => {
    await broker.send("a b", at("one"));
    await allow({ parallelism: 1 });
    await broker.send("c d", at("one"));
    expect(await broker.listStarted()).toBe("a b c");
    expect(broker.counts(toOne)).toEqual([1, 1]);
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
  });

  test("can be added and removed while messages wait for the account's limit in total", async () => {
    await allow({ globalParallelism: 1 });
    await broker.send("a b", at("one"));
    await allow({ globalParallelism: 1, parallelism: 1 });
    await broker.send("c d", at("one"));
    // Older deliveries are not counted. One of the later deliveries takes the place.
    expect([
      broker.counts("account:"),
      broker.counts(toOne),
      broker.findLimiter(toOne)?.waitingDownstream,
    ]).toEqual([[1, 2], [0, 1], 1]);
    await allow({ globalParallelism: 1 });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
    broker.now += spans.waitlistCheck;
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
    await broker.end("d");
    expect([broker.counts("account:"), broker.counts(toOne)]).toEqual([[0, 0], null]);
  });

  test("is checked once per second while messages wait for it, and not more often", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a b c", at("one"));
    await broker.listStarted();
    expect(broker.findLimiter(toOne)?.dueAt).toBe(noon + spans.waitlistCheck);
    broker.now += spans.waitlistCheck;
    await broker.run("claim", { limit: 10 });
    expect(broker.findLimiter(toOne)?.dueAt).toBe(noon + 2 * spans.waitlistCheck);
  });
});

describe("with other gates", () => {
  test("a full endpoint blocks no other endpoint of the account, however many messages wait", async () => {
    await allow({ parallelism: 2, globalParallelism: 4 });
    await broker.send("a1 a2 a3 a4 a5 a6 a7 a8", at("one"));
    await broker.send("b1 b2 b3", at("two"));
    await broker.send("c1", at("three"));
    expect(await broker.listStarted()).toBe("a1 a2 b1 b2");
    expect([broker.counts("account:"), broker.counts(toOne), broker.counts(toTwo)]).toEqual([
      [4, 1],
      [2, 6],
      [2, 1],
    ]);
    for (const [ended, next] of [
      ["a1", "c1"],
      ["b1", "a3"],
      ["c1", "b3"],
      ["a2", "a4"],
    ] as const) {
      await broker.end(ended);
      expect(await broker.listStarted()).toBe(next);
    }
  });

  test("at most as many messages of an endpoint as its limit wait for the account, in order", async () => {
    await allow({ parallelism: 2, globalParallelism: 1 });
    await broker.send("x", at("two"));
    await broker.send("a1 a2 a3 a4", at("one"));
    await broker.send("y", at("two"));
    expect(await broker.listStarted()).toBe("x");
    expect([
      broker.counts("account:"),
      broker.counts(toOne),
      broker.findLimiter(toOne)?.waitingDownstream,
    ]).toEqual([[1, 3], [0, 2], 2]);
    for (const [ended, next] of [
      ["x", "a1"],
      ["a1", "a2"],
      ["a2", "a3"],
      ["a3", "a4"],
      ["a4", "y"],
    ] as const) {
      await broker.end(ended);
      expect(await broker.listStarted()).toBe(next);
    }
  });

  test("messages of a key that wait for an endpoint are no more than could start", async () => {
    await allow({ parallelism: 2 });
    await broker.send("a b", at("one"));
    await broker.send("k1 k2 k3 k4", { ...at("one"), ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("x y", at("one"));
    expect(await broker.listStarted()).toBe("a b");
    expect([
      broker.counts(toOne),
      broker.counts("key:k"),
      broker.findLimiter("key:k")?.waitingDownstream,
    ]).toEqual([[2, 3], [0, 3], 1]);
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("k1 x");
    await broker.end("x");
    expect(await broker.listStarted()).toBe("y");
    await broker.end("k1");
    expect(await broker.listStarted()).toBe("k2");
  });

  test("a rate also applies to messages that waited for an endpoint", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a", at("one"));
    await broker.send("k1 k2 k3 k4 k5", {
      ...at("one"),
      ...makeFlowControl("k", { rate: 2, period: 10 * second }),
    });
    await broker.listStarted();
    await allow({ parallelism: 10 });
    broker.now += spans.waitlistCheck;
    expect(await broker.listStarted()).toBe("k1 k2");
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("k3 k4");
  });

  test("a paused key gets back its messages that wait for an endpoint", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a", at("one"));
    await broker.send("k1 k2", { ...at("one"), ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("x", at("one"));
    expect(await broker.listStarted()).toBe("a");
    await broker.run("pauseLimiter", { account: "acme", id: "key:k" });
    await broker.end("a");
    broker.now += spans.limiterCheck;
    expect(await broker.listStarted()).toBe("x");
    await broker.end("x");
    await broker.run("resumeLimiter", { account: "acme", id: "key:k" });
    expect(await broker.listStarted()).toBe("k1");
  });

  test("a queue keeps its order, regardless of the endpoints of its messages", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a", at("one"));
    await broker.send("q1", { ...at("one"), queue: "q" });
    await broker.send("q2", { ...at("two"), queue: "q" });
    await broker.send("x", at("one"));
    expect(await broker.listStarted()).toBe("a");
    for (const [ended, next] of [
      ["a", "q1"],
      ["q1", "x q2"],
    ] as const) {
      await broker.end(ended);
      expect((await broker.listStarted()).split(" ").toSorted()).toEqual(next.split(" ").toSorted());
    }
  });
});
