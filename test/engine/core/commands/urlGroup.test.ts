import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import type { Endpoint } from "../../../../src/engine/core/model/urlGroup.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { CommandRunner, makeInput, noon } from "../commandRunner.ts";

const [a, b, c] = ["https://a.example/x", "https://b.example/y", "https://c.example/z"] as const;
const bare = (...urls: string[]): Endpoint[] => urls.map((url) => ({ name: null, url }));
const acme = { account: "acme", name: "orders" };

const groupOf = (broker: CommandRunner, account = "acme") =>
  broker.memory.tables.urlGroups.get(`${account}\norders`);
const add = (broker: CommandRunner, endpoints: readonly Endpoint[], of = acme) =>
  broker.run("addEndpoints", { ...of, endpoints });
const publish = async (broker: CommandRunner, input: Partial<MessageInput> = {}, account = "acme") => {
  const [result] = await broker.run("publish", {
    account,
    inputs: [makeInput({ url: "", group: "orders", ...input })],
  });
  return result;
};
const openWith = async (...endpoints: Endpoint[]) => {
  const broker = await CommandRunner.open();
  await add(broker, endpoints);
  return broker;
};

describe("adding endpoints", () => {
  test("creates the group, and later adds to it", async () => {
    const broker = await openWith({ name: "one", url: a });
    broker.now += 5;
    expect(await add(broker, bare(b))).toEqual({
      account: "acme",
      name: "orders",
      createdAt: noon,
      updatedAt: noon + 5,
      headers: [],
      endpoints: [
        { name: "one", url: a },
        { name: null, url: b },
      ],
    });
    expect(groupOf(broker)?.endpoints).toHaveLength(2);
  });

  test.each<[how: string, added: Endpoint, expected: Endpoint[]]>([
    [
      "the same name with another URL changes the URL",
      { name: "one", url: c },
      [
        { name: "one", url: c },
        { name: "two", url: b },
      ],
    ],
    [
      "the same URL without a name changes nothing",
      { name: null, url: a },
      [
        { name: "one", url: a },
        { name: "two", url: b },
      ],
    ],
    [
      "the same URL with another name changes the name",
      { name: "new", url: b },
      [
        { name: "one", url: a },
        { name: "new", url: b },
      ],
    ],
    [
      "the name of one endpoint and the URL of another merges both",
      { name: "one", url: b },
      [{ name: "one", url: b }],
    ],
    [
      "the name of the last endpoint and the URL of the first merges both",
      { name: "two", url: a },
      [{ name: "two", url: a }],
    ],
  ])("%s", async (_, added, expected) => {
    const broker = await openWith({ name: "one", url: a }, { name: "two", url: b });
    await add(broker, [added]);
    expect(groupOf(broker)?.endpoints).toEqual(expected);
  });

  test("never leaves two endpoints with the same name or URL", async () => {
    const endpoint = fc.record({
      name: fc.constantFrom(null, "__proto__", "n1", "n2", "n3"),
      url: fc.constantFrom(a, b, c, "https://d.example"),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(endpoint, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 4 }),
        async (rounds) => {
          const broker = await CommandRunner.open();
          for (const endpoints of rounds) await add(broker, endpoints);
          const all = groupOf(broker)?.endpoints ?? [];
          const names = all.flatMap(({ name }) => (name === null ? [] : [name]));
          expect(new Set(names).size).toBe(names.length);
          expect(new Set(all.map(({ url }) => url)).size).toBe(all.length);
          // The endpoint that was added last exists.
          const last = rounds.at(-1)?.at(-1);
          expect(
            all.some(({ name, url }) => url === last?.url && (last.name === null || last.name === name)),
          ).toBe(true);
        },
      ),
      { numRuns: 200 },
    );
  });

  test("beyond the limit changes nothing", async () => {
    const broker = await openWith(...bare(a));
    const many = (count: number): Endpoint[] =>
      bare(...Array.from({ length: count }, (_, at) => `https://e${at}.example`));
    await expect(add(broker, many(limits.endpoints))).rejects.toThrow(
      "endpoints: 101 in the URL group orders exceeds the limit of 100",
    );
    await expect(add(broker, many(10_000))).rejects.toThrow(
      "endpoints: 10000 in one request exceeds the limit of 100",
    );
    const long = bare(
      ...Array.from({ length: 16 }, (_, at) => `https://e${at}.example/`.padEnd(8 * 1024, "x")),
    );
    await expect(add(broker, long)).rejects.toThrow(
      `endpoints: ${16 * 8 * 1024 + a.length} characters of names and URLs ` +
        "exceed the limit of 131072 for a URL group",
    );
    expect(groupOf(broker)?.endpoints).toEqual(bare(a));
    await add(broker, many(limits.endpoints - 1));
    expect(groupOf(broker)?.endpoints).toHaveLength(100);
  });
});

describe("removing", () => {
  test("endpoints works by name, by URL, or by both, and skips missing ones", async () => {
    const broker = await openWith({ name: "one", url: a }, { name: "two", url: b }, ...bare(c));
    const remove = (...endpoints: { name: string | null; url: string | null }[]) =>
      broker.run("removeEndpoints", { ...acme, endpoints });
    broker.now += 1;
    expect(await remove({ name: "none", url: null }, { name: "one", url: b })).toEqual({ removed: 0 });
    expect(groupOf(broker)?.updatedAt).toBe(noon);
    expect(await remove({ name: "one", url: null }, { name: null, url: c })).toEqual({ removed: 2 });
    expect(groupOf(broker)).toMatchObject({ updatedAt: noon + 1, endpoints: [{ name: "two", url: b }] });
    expect(await remove({ name: "two", url: b })).toEqual({ removed: 1 });
    expect(groupOf(broker)).toBeUndefined();
    await expect(remove({ name: "two", url: b })).rejects.toThrow("name: URL group orders does not exist");
  });

  test("a group keeps the messages that were published to it, and may be repeated", async () => {
    const broker = await openWith(...bare(a));
    await publish(broker, { delay: 1000 });
    expect(await broker.run("deleteGroup", acme)).toEqual({ deleted: 1 });
    expect(await broker.run("deleteGroup", acme)).toEqual({ deleted: 0 });
    expect(broker.memory.tables.messages.size).toBe(1);
    broker.now += 1000;
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([{ message: { url: a, group: "orders" } }]);
  });
});

describe("default headers", () => {
  test("replace the previous ones, and require a group", async () => {
    const broker = await CommandRunner.open();
    const set = (headers: [string, string][]) => broker.run("setGroupHeaders", { ...acme, headers });
    await expect(set([["Svc-Retries", "1"]])).rejects.toThrow("URL group orders does not exist");
    await add(broker, bare(a));
    broker.now += 7;
    await set([["Svc-Retries", "1"]]);
    expect(await set([["Svc-Label", "x"]])).toMatchObject({
      updatedAt: noon + 7,
      headers: [["Svc-Label", "x"]],
      endpoints: bare(a),
    });
  });
});

describe("a publish to a group", () => {
  test("creates a message for each endpoint, with its own id and state", async () => {
    const broker = await openWith({ name: "one", url: a }, ...bare(b));
    const result = await publish(broker, { queue: "q", labels: ["l"] });
    const envelopes = [...broker.memory.tables.storedMessages.values()];
    expect(envelopes).toMatchObject([
      { url: a, group: "orders", endpoint: "one", queue: "q", labels: ["l"] },
      { url: b, group: "orders", endpoint: null, queue: "q", labels: ["l"] },
    ]);
    const [first, second] = envelopes.map(({ id }) => id);
    expect(first).not.toBe(second);
    expect(result).toEqual({
      each: [
        { messageId: first, deduplicated: false, url: a },
        { messageId: second, deduplicated: false, url: b },
      ],
    });
  });

  test("retries each message separately", async () => {
    const broker = await openWith(...bare(a, b));
    await publish(broker, { retries: 1 });
    const [first = "", second = ""] = [...broker.memory.tables.storedMessages.values()].map(({ id }) => id);
    expect(await broker.settle(first, { status: 500 })).toBe("retry");
    expect(await broker.settle(second, { status: 200 })).toBe("delivered");
    expect(broker.state(first)).toMatchObject({ attempts: 1, state: "pending" });
    expect(broker.state(second)).toBeUndefined();
  });

  test("has deduplication keys of limited length, regardless of the length of the URLs", async () => {
    const one = `${a}?${"x".repeat(16_000)}1`;
    const two = `${a}?${"x".repeat(16_000)}2`;
    const broker = await openWith(...bare(one, two));
    const first = await publish(broker, { deduplication: "i:1" });
    expect(first).toMatchObject({ each: [{ deduplicated: false }, { deduplicated: false }] });
    expect(await publish(broker, { deduplication: "i:1" })).toMatchObject({
      each: [{ deduplicated: true }, { deduplicated: true }],
    });
    const keys = [...broker.memory.tables.deduplications.values()].map(({ key }) => key.length);
    expect(Math.max(...keys)).toBeLessThan(100);
  });

  test("is deduplicated for each endpoint separately", async () => {
    const broker = await openWith(...bare(a));
    const first = await publish(broker, { deduplication: "i:1" });
    await add(broker, bare(b));
    const second = await publish(broker, { deduplication: "i:1" });
    const messageId = first && "each" in first ? first.each[0]?.messageId : undefined;
    expect(messageId).toMatch(/^msg_/);
    expect(second).toMatchObject({
      each: [
        { url: a, messageId, deduplicated: true },
        { url: b, deduplicated: false },
      ],
    });
    expect(broker.memory.tables.storedMessages.size).toBe(2);
  });

  test("is not a duplicate of a publish to one of its endpoints under the same key", async () => {
    const broker = await openWith(...bare(a));
    await publish(broker, { deduplication: "i:1" });
    expect(await publish(broker, { url: a, group: null, deduplication: "i:1" })).toMatchObject({
      deduplicated: false,
    });
  });

  test.each<[Partial<MessageInput>, object]>([
    [
      { retries: 1_000_000 },
      { refused: "limit-exceeded", message: "retries: 1000000 exceeds the limit of 1000" },
    ],
    [{ body: new Uint8Array(10 * 1024 * 1024 + 1) }, { refused: "too-large" }],
  ])("that exceeds a limit creates no message", async (input, refusal) => {
    const broker = await openWith(...bare(a, b));
    expect(await publish(broker, input)).toMatchObject(refusal);
    expect(broker.memory.tables.storedMessages.size).toBe(0);
    expect(broker.memory.tables.messages.size).toBe(0);
  });

  test("that does not exist is refused", async () => {
    const broker = await openWith(...bare(a));
    await broker.run("deleteGroup", acme);
    expect(await publish(broker)).toEqual({
      refused: "not-found",
      message: "destination: topic orders not found, or this URL group has no endpoints",
    });
  });

  test("uses the group of the account that publishes", async () => {
    const broker = await openWith(...bare(a));
    const keys = { current: "sig_1", next: "sig_2" };
    await broker.run("createAccount", {
      id: "other",
      name: "other",
      password: "",
      token: "t2",
      tokenHash: "h2",
      signingKeys: keys,
    });
    await add(broker, bare(b), { account: "other", name: "orders" });
    await publish(broker, {}, "other");
    expect([...broker.memory.tables.storedMessages.values()]).toMatchObject([{ account: "other", url: b }]);
    await broker.run("deleteGroup", { account: "other", name: "orders" });
    expect(groupOf(broker)?.endpoints).toEqual(bare(a));
  });
});
