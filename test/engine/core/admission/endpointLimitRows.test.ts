import { beforeEach, describe, expect, test } from "vitest";
import { maxLostAttempts, spans } from "../../../../src/engine/core/values/limits.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { AccountLimits } from "../../../../src/engine/core/model/accountTerms.ts";
import { callbackTo, noCapacity, ampleCapacity } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const unbound = { globalParallelism: null, parallelism: null };
const allow = (limits: Partial<AccountLimits>): Promise<unknown> =>
  broker.run("changeAccount", { account: "acme", change: { limits: { ...unbound, ...limits } } });

const at = (path: string): Pick<MessageInput, "url"> => ({ url: `https://gateway.example${path}` });
const flowAt = (path: string): string => `endpoint:https://gateway.example${path}`;
/** Returns the ids of the endpoints' limiters that exist. */
const kept = (): string[] =>
  [...broker.memory.tables.limiters.keys()].flatMap((key) => /endpoint:.+/.exec(key) ?? []);

describe("endpoints of one host", () => {
  test("have separate places, so that a full one blocks no other", async () => {
    await allow({ parallelism: 2 });
    await broker.send("a b c d", at("/a"));
    await broker.send("x y z", at("/x"));
    expect(await broker.listStarted()).toBe("a b x y");
    await broker.end("x y");
    expect(await broker.listStarted()).toBe("z");
    await broker.send("v w", at("/x"));
    expect(await broker.listStarted()).toBe("v");
    expect([broker.counts(flowAt("/a")), broker.counts(flowAt("/x"))]).toEqual([
      [2, 2],
      [2, 1],
    ]);
  });

  test("differ by scheme, port and path; not by query, fragment, credentials or a default port", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a", at("/hook?a=1"));
    for (const [name, url] of [
      ["b", "https://gateway.example/hook"],
      ["c", "https://gateway.example/hook?a=2#x"],
      ["d", "https://me:secret@GATEWAY.example:443/hook"],
    ] as const)
      await broker.send(name, { url });
    for (const [name, url] of [
      ["e", "http://gateway.example/hook"],
      ["f", "https://gateway.example:8443/hook"],
      ["g", "https://gateway.example/Hook"],
      ["h", "https://gateway.example/hook/"],
      ["i", "https://gateway.example/%68ook"],
    ] as const)
      await broker.send(name, { url });
    expect(await broker.listStarted()).toBe("a e f g h i");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
  });

  test("share the capacity of their host; a message that waits for it can move on", async () => {
    await allow({ parallelism: 1 });
    broker.capacity = noCapacity;
    await broker.send("a b c", at("/a"));
    await broker.send("x", at("/x"));
    expect(await broker.listStarted()).toBe("");
    const lines = "a b c x".split(" ").map((name) => broker.state(broker.id(name))?.waitlist);
    expect([lines, kept()]).toEqual([Array(4).fill("capacity:gateway.example"), []]);
    broker.capacity = ampleCapacity;
    broker.now += spans.waitlistCheck;
    await broker.run("claim", { limit: 10 });
    expect(await broker.listStarted()).toBe("a x");
    expect(broker.counts(flowAt("/a"))).toEqual([1, 2]);
  });

  test("have paths of any length; one of 16 KiB is represented by a fingerprint", async () => {
    await allow({ parallelism: 1 });
    const path = `/${"long".repeat(4_000)}`;
    await broker.send("a", at(path));
    await broker.send("b", at(`${path}?a=1`));
    await broker.send("c", at(`${path}y`));
    await broker.send("d", at(`${path}y#b`));
    expect(await broker.listStarted()).toBe("a c");
    expect(kept().map((id) => id.length < 60 && id.startsWith("endpoint:https://gateway.example "))).toEqual([
      true,
      true,
    ]);
    await broker.end("a c");
    expect(await broker.listStarted()).toBe("b d");
    await broker.end("b d");
    expect(kept()).toEqual([]);
  });
});

describe("the row of an endpoint is removed with its last place when", () => {
  beforeEach(() => allow({ parallelism: 1 }));

  const sent = async (input: Partial<MessageInput> = {}): Promise<void> => {
    await broker.send("a", { ...at("/a"), ...input });
    await broker.listStarted();
    expect(broker.counts(flowAt("/a"))).toEqual([1, 0]);
  };

  test("the last message is delivered, and so are those that waited", async () => {
    await sent();
    await broker.send("b", at("/a"));
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
    expect(kept()).toEqual([flowAt("/a")]);
    await broker.end("b");
    expect(kept()).toEqual([]);
  });

  test("its message waits for a retry, and exists again for the retry", async () => {
    await sent({ retryDelay: "5000" });
    await broker.end("a", { status: 500 });
    expect(kept()).toEqual([]);
    broker.now += 5 * second;
    expect([await broker.listStarted(), kept()]).toEqual(["a", [flowAt("/a")]]);
  });

  test("its message fails, and the failure callback has a row while it is in flight", async () => {
    await sent({ retries: 0, failureCallback: callbackTo("https://sad.example/a") });
    await broker.end("a", { status: 500 });
    expect(broker.deadLetters).toHaveLength(1);
    await broker.listStarted();
    expect(kept()).toEqual(["endpoint:https://sad.example/a"]);
    await broker.end("https://sad.example/a");
    expect(kept()).toEqual([]);
  });

  test("a callback to the same endpoint has been delivered", async () => {
    await sent({ callback: callbackTo("https://gateway.example/a?told") });
    await broker.end("a");
    await broker.listStarted();
    expect(kept()).toEqual([flowAt("/a")]);
    await broker.end("https://gateway.example/a?told");
    expect(kept()).toEqual([]);
  });

  test("its message is cancelled: at once if it waits, or when its request has ended", async () => {
    await sent();
    await broker.send("b", at("/a"));
    await broker.cancel("b");
    expect(broker.counts(flowAt("/a"))).toEqual([1, 0]);
    await broker.cancel("a");
    expect(broker.counts(flowAt("/a"))).toEqual([1, 0]);
    await broker.end("a");
    expect(kept()).toEqual([]);
  });

  test("a lease is lost for the last time, or the lease of a cancelled message is lost", async () => {
    await sent();
    for (let lost = 0; lost <= maxLostAttempts; lost++) {
      expect(kept()).toEqual([flowAt("/a")]);
      broker.now += spans.lease;
      await broker.listStarted();
    }
    expect([broker.deadLetters.length, kept()]).toEqual([1, []]);
    await sent();
    await broker.cancel("a");
    broker.now += spans.lease;
    await broker.listStarted();
    expect(kept()).toEqual([]);
  });

  test("its node returns the lease, or the message is quarantined", async () => {
    await sent();
    await broker.run("returnLeases", {
      leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }],
    });
    expect(kept()).toEqual([]);
    await broker.run("quarantine", {
      row: { table: "messages", account: "acme", id: broker.id("a") },
      reason: "odd",
    });
    expect([broker.deadLetters.length, kept()]).toEqual([1, []]);
  });

  test("the queue is paused while its message waits for the endpoint", async () => {
    await sent();
    await broker.send("q", { ...at("/a"), queue: "q" });
    await broker.listStarted();
    expect(broker.counts(flowAt("/a"))).toEqual([1, 1]);
    await broker.run("pauseLimiter", { account: "acme", id: "queue:q" });
    await broker.end("a");
    expect([await broker.listStarted(), kept()]).toEqual(["", []]);
    await broker.run("resumeLimiter", { account: "acme", id: "queue:q" });
    broker.now += spans.pausedQueueCheck;
    expect([await broker.listStarted(), kept()]).toEqual(["q", [flowAt("/a")]]);
  });

  test("the key is paused while its message waits for the endpoint", async () => {
    await sent();
    await broker.send("k", { ...at("/a"), ...makeFlowControl("k", { parallelism: 5 }) });
    await broker.listStarted();
    await broker.run("pauseLimiter", { account: "acme", id: "key:k" });
    await broker.end("a");
    expect([await broker.listStarted(), kept(), broker.state(broker.id("k"))?.waitlist]).toEqual([
      "",
      [],
      "key:k",
    ]);
  });

  test("its message moves from the account's waitlist to a host's waitlist, and ends there", async () => {
    await allow({ parallelism: 1, globalParallelism: 1 });
    await sent();
    await broker.send("b", at("/b"));
    expect(broker.findLimiter(flowAt("/b"))).toMatchObject({ running: 0, waiting: 0, waitingDownstream: 1 });
    broker.capacity = noCapacity;
    await broker.end("a");
    broker.now += spans.limiterCheck;
    expect([await broker.listStarted(), kept(), broker.state(broker.id("b"))?.waitlist]).toEqual([
      "",
      [],
      "capacity:gateway.example",
    ]);
    broker.capacity = ampleCapacity;
    broker.now += spans.waitlistCheck;
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(kept()).toEqual([]);
  });

  test("the limit is removed", async () => {
    await sent();
    await broker.send("b", at("/a"));
    await allow({});
    await broker.end("a");
    expect([await broker.listStarted(), kept()]).toEqual(["b", []]);
  });
});

describe("with any number of endpoints", () => {
  test("an endpoint with all places reserved is checked only when a message moves", async () => {
    await allow({ parallelism: 1, globalParallelism: 1 });
    await broker.send("z", at("/z"));
    for (const name of ["a", "b", "c"]) await broker.send(`${name}1 ${name}2`, at(`/${name}`));
    await broker.listStarted();
    for (const name of ["a", "b", "c"])
      expect(broker.findLimiter(flowAt(`/${name}`))).toMatchObject({
        running: 0,
        waiting: 1,
        waitingDownstream: 1,
        dueAt: null,
      });
    for (const [ended, next] of ["z a1", "a1 b1", "b1 a2", "a2 b2", "b2 c1", "c1 c2"].map((both) =>
      both.split(" "),
    )) {
      await broker.end(ended ?? "");
      expect(await broker.listStarted()).toBe(next);
    }
    await broker.end("c2");
    expect(kept()).toEqual([]);
  });

  test("another limit applies as soon as a message of the endpoint moves", async () => {
    await allow({ parallelism: 1, globalParallelism: 1 });
    await broker.send("z", at("/z"));
    await broker.send("a1 a2 a3", at("/a"));
    await allow({ parallelism: 3, globalParallelism: 10 });
    expect(await broker.listStarted()).toBe("z a1 a2 a3");
    await broker.send("b1", at("/z"));
    await allow({ parallelism: 1, globalParallelism: 4 });
    await broker.send("c1 c2 c3", at("/c"));
    expect(broker.counts(flowAt("/c"))).toEqual([0, 2]);
    await allow({ globalParallelism: 4 });
    await broker.end("z a1 a2 a3");
    await broker.run("claim", { limit: 10 });
    broker.now += spans.limiterCheck;
    expect((await broker.listStarted()).split(" ").toSorted()).toEqual(["b1", "c1", "c2", "c3"]);
  });

  test("a limit of 0 holds all messages in one waitlist, and leaves no row of an endpoint", async () => {
    await allow({ parallelism: 1 });
    await broker.send("a b", at("/a"));
    expect(await broker.listStarted()).toBe("a");
    await allow({ parallelism: 0 });
    await broker.send("x", at("/x"));
    await broker.end("a");
    expect(await broker.listStarted()).toBe("");
    expect([broker.counts("account:"), kept()]).toEqual([[0, 2], []]);
    await allow({ parallelism: 1 });
    expect(await broker.listStarted()).toBe("b x");
  });
});
