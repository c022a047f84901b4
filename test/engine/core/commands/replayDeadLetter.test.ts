import { beforeEach, describe, expect, test } from "vitest";
import type { CommandInput } from "../../../../src/engine/store/catalog/commands.ts";
import { defaultCallback } from "../../../../src/engine/core/deadLetters/overrides.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { CommandRunner, bytes, makeInput } from "../commandRunner.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

/** Publishes a message that fails for good. Returns its id and the id of its dead letter. */
async function fail(input: Partial<MessageInput> = {}): Promise<{ messageId: string; dlqId: string }> {
  const messageId = await broker.publish({ retries: 0, ...input });
  await broker.settle(messageId);
  return { messageId, dlqId: broker.deadLetters.find((one) => one.messageId === messageId)?.id ?? "" };
}

const replay = (dlqId: string, more: Partial<CommandInput<"replayDeadLetter">> = {}) =>
  broker.run("replayDeadLetter", { account: "acme", dlqId, change: {}, overrides: {}, ...more });

const stored = (id: string) => broker.memory.tables.storedMessages.get(`acme\n${id}`);

describe("a replay", () => {
  test("is a new message with the changes, and both messages name each other", async () => {
    const { messageId, dlqId } = await fail({
      body: bytes("old"),
      headers: [["X-A", "1"]],
      labels: ["l"],
      deduplication: "key",
    });
    const { messageId: fresh } = await replay(dlqId, {
      change: { url: "https://other.example/x", headers: [["X-B", "2"]], body: bytes("new") },
      overrides: { method: "PUT", retries: 7, headers: [["X-C", "3"]] },
    });
    expect(stored(fresh)).toEqual({
      ...stored(messageId),
      id: fresh,
      url: "https://other.example/x",
      body: bytes("new"),
      headers: [
        ["X-B", "2"],
        ["X-C", "3"],
      ],
      method: "PUT",
      retries: 7,
      deduplication: null,
      replayOf: { messageId, dlqId },
    });
    expect(broker.deliveries).toMatchObject([{ message: { id: fresh } }]);
    expect(broker.deadLetters).toMatchObject([{ id: dlqId, messageId, replays: [fresh] }]);
  });

  test("keeps what it does not change, and its dead letter names the 20 newest replays", async () => {
    const { messageId, dlqId } = await fail({ body: bytes("old") });
    const ids: string[] = [];
    for (let at = 0; at < 21; at++) ids.push((await replay(dlqId)).messageId);
    const [first = ""] = ids;
    expect(stored(first)).toMatchObject({ body: bytes("old"), url: stored(messageId)?.url });
    expect(broker.deadLetters).toMatchObject([{ replays: ids.slice(1) }]);
  });

  test("to another URL does not belong to the URL group of the old message", async () => {
    await broker.run("addEndpoints", {
      account: "acme",
      name: "g",
      endpoints: [{ name: "e", url: "https://one.example/" }],
    });
    await broker.run("publish", {
      account: "acme",
      inputs: [makeInput({ url: "", group: "g", retries: 0 })],
    });
    const [sent] = broker.deliveries;
    await broker.settle(sent?.message.id ?? "");
    const [deadLetter] = broker.deadLetters;
    const same = await replay(deadLetter?.id ?? "", { change: { url: "https://one.example/" } });
    const other = await replay(deadLetter?.id ?? "", { change: { url: "https://two.example/" } });
    expect(stored(same.messageId)).toMatchObject({ group: "g", endpoint: "e" });
    expect(stored(other.messageId)).toMatchObject({ group: null, endpoint: null });
  });

  test.each([
    { hidden: { body: true, headers: false }, change: {}, error: "body: redacted" },
    { hidden: { body: false, headers: true }, change: {}, error: "headers: redacted" },
    { hidden: { body: false, headers: ["X-A"] }, change: {}, error: "headers: redacted" },
    {
      hidden: { body: true, headers: true },
      change: { body: bytes("new") },
      error: "headers: redacted",
    },
  ])("does not send redacted parts to another URL: $hidden", async ({ hidden, change, error }) => {
    const { dlqId } = await fail({ redaction: hidden, headers: [["X-A", "1"]], body: bytes("secret") });
    const url = "https://other.example/";
    await expect(replay(dlqId, { change: { url, ...change } })).rejects.toThrow(error);
    const all = { url, body: bytes("new"), headers: [] };
    const sent = stored((await replay(dlqId, { change: all })).messageId);
    expect(sent).toMatchObject({ url, redaction: hidden });
    expect(stored((await replay(dlqId)).messageId)).toMatchObject({ body: bytes("secret") });
  });

  test("does not report redacted parts to a callback that its publisher did not choose", async () => {
    const callback = defaultCallback("https://callback.example/");
    const { dlqId } = await fail({
      redaction: { body: true, headers: false },
      body: bytes("secret"),
      callback: { ...callback, failureCallback: defaultCallback("https://nested.example/") },
    });
    for (const overrides of [
      { callback: { url: "https://other.example/" } },
      { failureCallback: { url: "https://other.example/" } },
      { callback: { failureCallback: { url: "https://other.example/" } } },
    ]) {
      await expect(replay(dlqId, { overrides })).rejects.toThrow("body: redacted");
      await replay(dlqId, { overrides, change: { body: bytes("new") } });
    }
    await replay(dlqId, { overrides: { failureCallback: { url: "https://callback.example/" } } });
    await replay(dlqId, { overrides: { callback: { retries: 1, failureCallback: { retries: 2 } } } });
    expect(broker.deadLetters[0]?.replays).toHaveLength(5);
  });

  test("may go to another URL if no redacted header exists", async () => {
    const { dlqId } = await fail({ redaction: { body: false, headers: ["X-A"] }, headers: [["X-B", "1"]] });
    await replay(dlqId, { change: { url: "https://other.example/" } });
    expect(broker.deliveries).toMatchObject([{ message: { url: "https://other.example/" } }]);
  });

  test("needs a token that may read, and that may publish to the URL", async () => {
    const { dlqId } = await fail();
    const scope = { id: "tok_1", verbs: ["manage" as const], destinations: [], expiresAt: null };
    await expect(replay(dlqId, { scope })).rejects.toThrow("requires 'read'");
    const limited = {
      ...scope,
      verbs: ["manage" as const, "read" as const],
      destinations: ["https://shop.example/*"],
    };
    await expect(
      replay(dlqId, { scope: limited, change: { url: "https://other.example/" } }),
    ).rejects.toThrow("it may publish only to https://shop.example/*");
    await replay(dlqId, { scope: limited, change: { url: "https://shop.example/x" } });
    expect(broker.deliveries).toMatchObject([{ message: { url: "https://shop.example/x" } }]);
  });

  test("is refused for an unknown dead letter, and for changes beyond a limit", async () => {
    const { dlqId } = await fail();
    await expect(replay("1800000000000-000000000")).rejects.toThrow("there is no dead letter");
    await expect(replay(dlqId, { overrides: { retries: 1_001 } })).rejects.toThrow("retries: 1001 exceeds");
    await expect(replay(dlqId, { change: { body: new Uint8Array(11 * 1024 * 1024) } })).rejects.toThrow(
      "body: 11534336 bytes exceeds",
    );
    expect(broker.deadLetters).toMatchObject([{ id: dlqId }]);
    expect(broker.deadLetters[0]?.replays).toBeUndefined();
  });
});
