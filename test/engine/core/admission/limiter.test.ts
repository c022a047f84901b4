import { beforeEach, describe, expect, test } from "vitest";
import { callbackTo, noCapacity, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

/**
 * Returns the messages that start, with the seconds after noon at which they do, as long as something is due
 * within `within`.
 */
async function timeline(within: number): Promise<string[]> {
  const lines: string[] = [];
  for (;;) {
    const begun = await broker.listStarted();
    if (begun !== "") lines.push(`${(broker.now - noon) / second}s ${begun}`);
    const { messages, limiters } = broker.memory.tables;
    const times = [...messages.values(), ...limiters.values()].flatMap(({ dueAt }) =>
      dueAt === null ? [] : [dueAt],
    );
    const next = Math.min(...times, Infinity);
    if (next > noon + within) return lines;
    broker.now = next;
  }
}

describe("parallelism of a key", () => {
  const input = makeFlowControl("k", { parallelism: 2 });

  test("limits messages in flight to any destinations, in order of acceptance", async () => {
    await broker.send("a b", input);
    await broker.send("c d", { ...input, url: "https://other.example/" });
    expect(await broker.listStarted()).toBe("a b");
    expect(broker.counts("key:k")).toEqual([2, 2]);
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("a c");
    expect(await broker.listStarted()).toBe("d");
    await broker.end("d");
    expect(broker.counts("key:k")).toEqual([0, 0]);
  });

  test("does not count a message that waits for a retry", async () => {
    await broker.send("a b c", { ...input, retryDelay: "60000" });
    expect(await broker.listStarted()).toBe("a b");
    await broker.end("a", { status: 500 });
    expect(await broker.listStarted()).toBe("c");
    expect(broker.counts("key:k")).toEqual([2, 0]);
    await broker.end("b c");
    broker.now += minute;
    expect(await broker.listStarted()).toBe("a");
  });

  test("holds a message that is due for a retry, before those accepted later", async () => {
    await broker.send("a b c d", { ...input, retryDelay: "1000" });
    expect(await broker.listStarted()).toBe("a b");
    await broker.end("a", { status: 500 });
    expect(await broker.listStarted()).toBe("c");
    broker.now += second;
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts("key:k")).toEqual([2, 2]);
    await broker.end("b");
    expect(await broker.listStarted()).toBe("a");
  });

  test("does not count callbacks, which have their own settings", async () => {
    await broker.send("a b", {
      ...makeFlowControl("k", { parallelism: 1 }),
      callback: callbackTo("https://told.example/"),
    });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("https://told.example/ b");
    expect(broker.counts("key:k")).toEqual([1, 0]);
  });

  test("counts callbacks under their own key", async () => {
    await broker.send("x", makeFlowControl("c", { parallelism: 1 }));
    await broker.send("a", {
      callback: { ...callbackTo("https://told.example/"), ...makeFlowControl("c", { parallelism: 1 }) },
    });
    expect(await broker.listStarted()).toBe("x a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts("key:c")).toEqual([1, 1]);
    await broker.end("x");
    expect(await broker.listStarted()).toBe("https://told.example/");
  });

  test("applies to each account and key separately", async () => {
    await broker.send("a b", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("c", makeFlowControl("l", { parallelism: 1 }));
    await broker.send("d");
    expect(await broker.listStarted()).toBe("a c d");
  });
});

describe("the rate of a key", () => {
  const input = makeFlowControl("k", { rate: 2, period: 10 * second });

  test("starts exactly that number of messages in each window", async () => {
    await broker.send("a b c d e", input);
    expect(await timeline(minute - 1)).toEqual(["0s a b", "10s c d", "20s e", "30s a b", "40s c d", "50s e"]);
  });

  test("counts a window from the first message that starts in it", async () => {
    await broker.send("a", input);
    await broker.end("a");
    broker.now += 25 * second;
    await broker.send("b c d e f", input);
    expect(await broker.listStarted()).toBe("a b c");
    await broker.end("b c");
    broker.now += 10 * second - 1;
    expect(await broker.listStarted()).toBe("");
    broker.now += 1;
    expect(await broker.listStarted()).toBe("d e");
  });

  test("counts retries and attempts whose lease was lost as well", async () => {
    await broker.send("a b c", { ...input, retryDelay: "1000" });
    expect(await broker.listStarted()).toBe("a b");
    await broker.end("a", { status: 500 });
    broker.now = noon + 10 * second;
    // In order of acceptance: a has been due for a retry for 9 seconds, and c has waited for 10.
    expect((await broker.listStarted()).split(" ").toSorted()).toEqual(["a", "c"]);
    expect(broker.findLimiter("key:k")).toMatchObject({ windowStart: noon + 10 * second, windowUsed: 2 });
    await broker.end("a", { status: 500 });
    broker.now = noon + 11 * second;
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts("key:k")).toEqual([2, 1]);
  });

  test("applies to messages that become due together", async () => {
    await broker.send("a b c d e", { ...input, delay: minute });
    broker.now += minute;
    expect(await broker.listStarted()).toBe("a b");
    expect(broker.counts("key:k")).toEqual([2, 3]);
  });

  test("is not prolonged by a clock that goes back", async () => {
    await broker.send("a b c", input);
    expect(await broker.listStarted()).toBe("a b");
    broker.now = noon - hour;
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("c");
  });

  test("and the parallelism apply together", async () => {
    await broker.send("a b c d", makeFlowControl("k", { parallelism: 1, rate: 2, period: 10 * second }));
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("");
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("c");
    expect(broker.counts("key:k")).toEqual([1, 1]);
  });
});

describe("the limits of a key", () => {
  test("are those of the message that was accepted last", async () => {
    await broker.send("a b c", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("d", makeFlowControl("k", { parallelism: 3 }));
    expect(await broker.listStarted()).toBe("a b c");
    await broker.send("e", makeFlowControl("k", { parallelism: 1 }));
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
  });

  test("can be set by a message that is not yet due", async () => {
    await broker.send("a", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("late", { ...makeFlowControl("k", { parallelism: 7 }), delay: minute });
    expect(broker.findLimiter("key:k")).toMatchObject({ parallelism: 7, running: 1 });
  });

  test("end when a message does not have them", async () => {
    await broker.send("a b", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("c", makeFlowControl("k", { rate: 9, period: minute }));
    expect(broker.findLimiter("key:k")).toMatchObject({ parallelism: null, rate: 9, period: minute });
    expect((await broker.listStarted()).split(" ").toSorted()).toEqual(["a", "b", "c"]);
  });

  test("that change within a window do not start a new window", async () => {
    await broker.send("a b", makeFlowControl("k", { rate: 2, period: minute }));
    broker.now += 10 * second;
    await broker.send("c", makeFlowControl("k", { rate: 3, period: 30 * second }));
    expect(await broker.listStarted()).toBe("a b c");
    await broker.send("d", makeFlowControl("k", { rate: 3, period: 30 * second }));
    broker.now = noon + 30 * second - 1;
    expect(await broker.listStarted()).toBe("");
    broker.now += 1;
    // The leases of a and b expired just now as well, and both were accepted before d.
    expect((await broker.listStarted()).split(" ").toSorted()).toEqual(["a", "b", "d"]);
  });
});

describe("a message releases its places", () => {
  const input = { ...makeFlowControl("k", { parallelism: 1 }), retryDelay: "1000" };

  test("when it is cancelled while it is in flight, waits, or waits for a retry", async () => {
    await broker.send("a b c d", input);
    expect(await broker.listStarted()).toBe("a");
    await broker.cancel("a c");
    expect(await broker.listStarted()).toBe("");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b", { status: 500 });
    expect(await broker.listStarted()).toBe("d");
    await broker.cancel("b");
    expect(broker.counts("key:k")).toEqual([1, 0]);
    await broker.end("d");
    expect(broker.counts("key:k")).toEqual([0, 0]);
  });

  test("when its lease is lost, so that it starts again in order of acceptance", async () => {
    await broker.send("a b", input);
    expect(await broker.listStarted()).toBe("a");
    broker.now += 30 * second;
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts("key:k")).toEqual([1, 1]);
  });

  test("when its node returns the lease, or is gone", async () => {
    await broker.send("a b", input);
    expect(await broker.listStarted()).toBe("a");
    await broker.run("returnLeases", {
      leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }],
    });
    expect(broker.counts("key:k")).toEqual([0, 1]);
    expect(await broker.listStarted()).toBe("b");
    expect(broker.counts("key:k")).toEqual([1, 1]);
    broker.node = "nod_b";
    await broker.run("reclaim", { node: "nod_b", limit: 10 });
    // b has lost its turn, and a was accepted before it.
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts("key:k")).toEqual([1, 1]);
  });

  test("only once if its lease is returned twice", async () => {
    await broker.send("a b", { flowControl: { key: "k", parallelism: 2, rate: null, period: null } });
    expect(await broker.listStarted()).toBe("a b");
    const lease = { account: "acme", messageId: broker.id("a"), attempt: 0 };
    expect(await broker.run("returnLeases", { leases: [lease, lease] })).toEqual({ returned: 1 });
    expect(broker.counts("key:k")).toEqual([1, 0]);
  });

  test("when it fails for good, and again when it is retried from the dead letter queue", async () => {
    await broker.send("a b", { ...input, retries: 0 });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    await broker.run("retryDeadLetters", {
      account: "acme",
      dlqIds: broker.deadLetters.map(({ id }) => id),
      logRetention: hour,
      overrides: { flowControl: { key: "k", parallelism: 2, rate: null, period: null } },
    });
    expect((await broker.listStarted()).split(" ").toSorted()).toEqual(["a", "b"]);
    expect(broker.counts("key:k")).toEqual([2, 0]);
  });
});

describe("if capacity is short", () => {
  test("a message that waits for capacity does not take the place of others of its key", async () => {
    broker.capacity = noCapacity;
    await broker.send("a", makeFlowControl("k", { parallelism: 1 }));
    await broker.send("b", { ...makeFlowControl("k", { parallelism: 1 }), url: "https://other.example/" });
    broker.capacity = {
      ...noCapacity,
      free: 2,
      perHost: 1,
      runningByLane: new Map([["acme shop.example", 1]]),
    };
    await broker.run("claim", { limit: 10 });
    expect(broker.state(broker.id("a"))).toMatchObject({ state: "held", waitlist: "capacity:shop.example" });
    expect(broker.state(broker.id("b"))?.state).toBe("active");
    expect(broker.counts("key:k")).toEqual([1, 0]);
    broker.capacity = { ...noCapacity, free: 10, perHost: 10 };
    broker.now += second;
    // There is capacity now, and the place of the key is taken.
    await broker.run("claim", { limit: 10 });
    expect(broker.state(broker.id("a"))).toMatchObject({ waitlist: "key:k" });
    expect(broker.counts("key:k")).toEqual([1, 1]);
    await broker.end("b");
    expect(await broker.listStarted()).toMatch(/a$/);
    expect(broker.memory.tables.hostWaitlists.size).toBe(0);
  });

  test("a key whose first messages found no capacity lets others pass a little later", async () => {
    await broker.run("pauseLimiter", { account: "acme", id: "key:k" });
    await broker.send("a b c d e f g", makeFlowControl("k", { parallelism: 2 }));
    await broker.run("resumeLimiter", { account: "acme", id: "key:k" });
    broker.capacity = {
      ...noCapacity,
      free: 5,
      perHost: 1,
      runningByLane: new Map([["acme shop.example", 1]]),
    };
    await broker.run("claim", { limit: 10 });
    expect(broker.counts("key:k")).toEqual([0, 5]);
    const dueAt = (): number | null | undefined => broker.memory.tables.limiters.get("acme\nkey:k")?.dueAt;
    expect(dueAt()).toBe(broker.now + 100);
    broker.now += 100;
    await broker.run("claim", { limit: 10 });
    expect(broker.counts("key:k")).toEqual([0, 3]);
    // One of the messages is sent from the waitlist of its host, and ends.
    broker.capacity = { ...noCapacity, free: 10, perHost: 1 };
    broker.now += second;
    await broker.run("claim", { limit: 10, limiters: 0 });
    expect(broker.counts("key:k")).toEqual([1, 3]);
    await broker.end("a");
    // The next message of the host is sent, and a message of the key takes its place there.
    expect(broker.counts("key:k")).toEqual([1, 2]);
  });
});
