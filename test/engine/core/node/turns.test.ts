import { describe, expect, test } from "vitest";
import { listBackloggedAccounts, orderInRounds, turnLimits } from "../../../../src/engine/core/node/turns.ts";
import { CommandRunner, makeInput, noCapacity, ampleCapacity } from "../commandRunner.ts";

const rows = (text: string) => [...text].map((letter, at) => ({ account: letter, id: `${letter}${at}` }));
const idsOf = (found: readonly { id: string }[]) => found.map(({ id }) => id).join(" ");

describe("rounds through the accounts", () => {
  test("take one row of each account, in the order of each", () => {
    expect(idsOf(orderInRounds(rows("aaabcb")))).toBe("a0 b3 c4 a1 b5 a2");
  });

  test("leave the rows of one account as they are", () => {
    const all = rows("aaaa");
    expect(orderInRounds(all)).toBe(all);
  });
});

test("an account has a backlog if it had as many rows as a turn looks at", () => {
  const all = rows("a".repeat(turnLimits.rows) + "b".repeat(turnLimits.rows - 1));
  const none = { before: [], from: undefined, to: "" };
  expect(listBackloggedAccounts(all, { ...none, from: "" })).toEqual(["a"]);
  // An account without a turn may have more rows, and so may an account that had a backlog before.
  expect(listBackloggedAccounts(all, none)).toEqual(["a", "b"]);
  expect(listBackloggedAccounts(all, { before: ["a", "c", "d"], from: "b", to: "c" })).toEqual([
    "a",
    "d",
    "b",
  ]);
});

describe("a claim", () => {
  async function backlog(accounts: Record<string, number>): Promise<CommandRunner> {
    const broker = await CommandRunner.open();
    broker.capacity = noCapacity;
    for (const [id, count] of Object.entries(accounts)) {
      await broker.run("createAccount", { ...account, id, name: id, token: id, tokenHash: id });
      const inputs = Array.from({ length: count }, (_, at) =>
        makeInput({ url: `https://${id}.example/${at}` }),
      );
      if (count > 0) await broker.run("publish", { account: id, inputs });
      broker.now += 1;
    }
    broker.capacity = ampleCapacity;
    return broker;
  }
  const account = { password: "", signingKeys: { current: "sig_1", next: "sig_2" } };
  const sentOf = (broker: CommandRunner) => broker.deliveries.map(({ message }) => message.account);

  test("that finds more rows than it can look at gives all accounts a turn from then on", async () => {
    const broker = await backlog({ large: 200, small: 2 });
    const first = await broker.run("claim", { limit: 10 });
    expect(first).toMatchObject({ more: true, turns: { messages: "" }, backlogged: ["large"] });
    expect(new Set(sentOf(broker))).toEqual(new Set(["large"]));
    const second = await broker.run("claim", { limit: 10, turns: first.turns });
    expect(sentOf(broker).filter((id) => id === "small")).toHaveLength(2);
    expect(sentOf(broker).filter((id) => id === "large").length).toBeGreaterThanOrEqual(10);
    expect(second).toMatchObject({ more: true, backlogged: ["large"] });
  });

  test("offers scarce capacity to the accounts in turn", async () => {
    const broker = await backlog({ large: 30, small: 30 });
    broker.capacity = { ...ampleCapacity, free: 8 };
    await broker.run("claim", { limit: 100 });
    expect(sentOf(broker).slice(0, 4)).toEqual(["large", "small", "large", "small"]);
  });

  test("continues after the accounts that had their turn, and starts again at the end", async () => {
    const many = Object.fromEntries(
      Array.from({ length: turnLimits.accounts + 2 }, (_, at) => [`b${String(at).padStart(2, "0")}`, 2]),
    );
    const broker = await backlog({ a: 100, ...many });
    const first = await broker.run("claim", { limit: 10 });
    const second = await broker.run("claim", { limit: 10, turns: first.turns });
    expect(second.turns).toEqual({ messages: `b${turnLimits.accounts - 2}` });
    const third = await broker.run("claim", { limit: 10, turns: second.turns });
    expect(third.turns).toEqual({ messages: "" });
    expect(new Set(sentOf(broker))).toEqual(new Set(["a", "b15", "b16", "b17"]));
  });

  test("finds expired leases even if more rows are due than it looks at", async () => {
    const broker = await backlog({ lostAttempts: 1, large: 100 });
    await broker.run("claim", { limit: 1 });
    const [delivery] = broker.deliveries;
    broker.now += 60_000;
    await broker.run("claim", { limit: 5 });
    expect(broker.deliveries.map(({ message }) => message.id)).toContain(delivery?.message.id);
  });

  test("lets messages of an account without a backlog be sent at once", async () => {
    const broker = await backlog({ large: 100, small: 0 });
    broker.capacity = {
      ...ampleCapacity,
      backlog: new Set(["large"]),
      runningByLane: new Map([
        ["large large.example", 1],
        ["small small.example", 1],
      ]),
    };
    const publish = (id: string) =>
      broker.run("publish", { account: id, inputs: [makeInput({ url: `https://${id}.example/` })] });
    await publish("small");
    expect(sentOf(broker)).toEqual(["small"]);
    await publish("large");
    expect(sentOf(broker)).toEqual([]);
  });
});
