import { fc } from "../../seeds.ts";
import { expect, test } from "vitest";
import type { DeliveryCapacity } from "../../../src/engine/core/admission/capacity.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import { callbackTo, noCapacity } from "./commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "./recount.ts";

const second = 1000;

/** The inputs of the messages: every combination of gates, with limits that stay the same. */
const kinds: Readonly<Record<string, Partial<MessageInput>>> = {
  one: { queue: "one" },
  told: {
    queue: "one",
    callback: { ...callbackTo("https://told.example/"), retries: 0 },
    failureCallback: callbackTo("https://sad.example/"),
  },
  three: { queue: "three", ...makeFlowControl("two", { parallelism: 2 }) },
  two: makeFlowControl("two", { parallelism: 2 }),
  slow: { ...makeFlowControl("slow", { rate: 2, period: 10 * second }), url: "https://slow.example/" },
  near: { url: "https://slow.example/near?a=1" },
  nearer: { url: "https://slow.example/near?a=2#b", ...makeFlowControl("two", { parallelism: 2 }) },
  both: {
    queue: "three",
    ...makeFlowControl("slow", { rate: 2, period: 10 * second }),
    url: "https://slow.example/",
  },
  late: { queue: "three", ...makeFlowControl("two", { parallelism: 2 }), delay: 20 * second },
};

const freeDeliveries = { plenty: 1000, few: 3, none: 0 };

type Step =
  | { do: "publish"; kind: string }
  | { do: "settle"; which: number; status: number }
  | { do: "cancel" | "returnLeases"; which: number }
  | { do: "wait"; span: number }
  | { do: "capacity"; capacity: keyof typeof freeDeliveries }
  | { do: "pause" | "resume"; id: string }
  | { do: "allow"; most: number; toEndpoint: number }
  | { do: "claim" | "retry" | "delete" };

const which = fc.nat(1000);
const flow = fc.constantFrom("queue:one", "queue:three", "key:two", "key:slow");
const steps = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant("publish" as const),
        kind: fc.constantFrom(...Object.keys(kinds)),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant("settle" as const),
        which,
        status: fc.constantFrom(200, 200, 500),
      }),
    },
    { weight: 6, arbitrary: fc.record({ do: fc.constant("claim" as const) }) },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant("wait" as const),
        span: fc.constantFrom(1, second, 10 * second, 31 * second),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constantFrom("cancel" as const, "returnLeases" as const), which }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constant("capacity" as const),
        capacity: fc.constantFrom("plenty" as const, "few" as const, "none" as const),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constantFrom("pause" as const, "resume" as const), id: flow }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constant("allow" as const), most: fc.nat(4), toEndpoint: fc.nat(3) }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("retry" as const, "delete" as const) }) },
  ),
  { minLength: 20, maxLength: 60 },
);

/** A broker whose capacity is what its deliveries in flight leave. */
class Run {
  readonly broker: RecountedCommandRunner;
  total = 1000;
  constructor(broker: RecountedCommandRunner) {
    this.broker = broker;
  }

  get states(): MessageState[] {
    return [...this.broker.memory.tables.messages.values()];
  }

  get active(): MessageState[] {
    return this.states.filter(({ leasedBy }) => leasedBy !== null);
  }

  takeHands(): void {
    const free = this.total - this.active.length;
    const limited: DeliveryCapacity = { ...noCapacity, free, perHost: 2, runningByLane: new Map() };
    this.broker.capacity = this.total === 1000 ? { ...limited, perHost: 1000 } : limited;
  }

  async take(step: Step): Promise<void> {
    const { broker } = this;
    this.takeHands();
    if (step.do === "publish") await broker.publish(kinds[step.kind] ?? {});
    else if (step.do === "settle") await this.settle(step.which, step.status);
    else if (step.do === "cancel") await this.cancel(step.which);
    else if (step.do === "returnLeases") await this.returnLeases(step.which);
    else if (step.do === "wait") broker.now += step.span;
    else if (step.do === "capacity") this.total = freeDeliveries[step.capacity];
    else if (step.do === "pause") await broker.run("pauseLimiter", { account: "acme", id: step.id });
    else if (step.do === "resume") await broker.run("resumeLimiter", { account: "acme", id: step.id });
    else if (step.do === "allow") await this.allow(step);
    else if (step.do === "retry") await this.retry();
    else if (step.do === "delete") await this.delete();
    else
      await broker.run("claim", {
        limit: 10,
        hostWaitlists: Math.max(0, Math.min(10, this.total - this.active.length)),
      });
    this.check();
  }

  /** The limit, or 0 for none. */
  async allow({ most, toEndpoint }: { most: number; toEndpoint: number }): Promise<void> {
    const limits = {
      ...(most === 0 ? {} : { globalParallelism: most }),
      ...(toEndpoint === 0 ? {} : { parallelism: toEndpoint }),
    };
    await this.broker.run("changeAccount", { account: "acme", change: { limits } });
  }

  async settle(at: number, status: number): Promise<void> {
    const { active } = this;
    const one = active[at % active.length];
    if (one) await this.broker.settle(one.id, { status });
  }

  async cancel(at: number): Promise<void> {
    const { states } = this;
    const one = states[at % states.length];
    if (one) await this.broker.run("cancel", { account: "acme", messageIds: [one.id] });
  }

  async returnLeases(at: number): Promise<void> {
    const { active } = this;
    const one = active[at % active.length];
    if (one)
      await this.broker.run("returnLeases", {
        leases: [{ account: "acme", messageId: one.id, attempt: one.attempts }],
      });
  }

  async retry(): Promise<void> {
    const dlqIds = this.broker.deadLetters.map(({ id }) => id);
    await this.broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention: 1e12, overrides: {} });
  }

  async delete(): Promise<void> {
    const messageIds = this.states.filter(({ queue }) => queue === "one").map(({ id }) => id);
    await this.broker.run("cancel", { account: "acme", messageIds });
    const slots = [...this.broker.memory.tables.queueSlots.keys()].map((key) => key.slice("acme\n".length));
    const { deleted } = await this.broker.run("deleteQueue", { account: "acme", name: "one", slots });
    if (!deleted) throw new Error("a queue without messages could not be deleted");
  }

  check(): void {
    const sent = (key: string): number =>
      this.active.filter(({ flowControlKey }) => flowControlKey === key).length;
    const slots = (queue: string): number =>
      [...this.broker.memory.tables.queueSlots.values()].filter((slot) => slot.queue === queue).length;
    const { queueSlots: held } = this.broker.memory.tables;
    const [oldest = "~"] = this.states
      .flatMap(({ id, waitlist }) => (waitlist === "queue:one" ? [id] : []))
      .toSorted();
    const isInOrder = [...held.values()].every(({ id, queue }) => queue !== "one" || id < oldest);
    const begun = this.broker.findLimiter("key:slow")?.windowUsed ?? 0;
    if (sent("two") <= 2 && slots("one") <= 1 && slots("three") <= 3 && begun <= 2 && isInOrder) return;
    throw new Error(
      "beyond limits: " +
        JSON.stringify({ two: sent("two"), one: slots("one"), three: slots("three"), begun, isInOrder }),
    );
  }

  /** With all gates open and every response successful, all messages must finish. */
  async finish(): Promise<void> {
    const { broker } = this;
    this.total = 1000;
    for (const id of ["queue:one", "queue:three", "key:two", "key:slow"])
      await broker.run("resumeLimiter", { account: "acme", id });
    for (let turn = 0; this.states.length > 0; turn++) {
      if (turn === 300)
        throw new Error(
          `stuck: ${JSON.stringify(this.states)} ` +
            JSON.stringify([...broker.memory.tables.limiters.values()]),
        );
      this.takeHands();
      await broker.listStarted();
      for (const { id } of this.active) await broker.settle(id, { status: 200 });
      this.check();
      broker.now += second;
    }
  }
}

test("counters equal a recount after every command, limits hold, and all messages finish", async () => {
  const property = fc.asyncProperty(steps, async (all) => {
    const run = new Run(await RecountedCommandRunner.open());
    await run.broker.run("upsertQueue", { account: "acme", name: "three", parallelism: 3 });
    for (const step of all) await run.take(step);
    await run.finish();
    expect(run.broker.memory.tables.queueSlots.size).toBe(0);
    expect([...run.broker.memory.tables.limiters.keys()].filter((key) => /endpoint:./.test(key))).toEqual([]);
  });
  await fc.assert(property, { numRuns: 150 });
});
