import { beforeEach, describe, expect, test } from "vitest";
import type { Rejection, WebhookSource } from "../../../src/engine/core/model/webhookSource.ts";
import { mayKeepRejection, maxRejections, rejectionRange } from "../../../src/operations/sources/commands.ts";
import { CommandRunner, bytes, noon } from "../../engine/core/commandRunner.ts";

let broker: CommandRunner;
let source: WebhookSource;

const setUp = {
  name: "shop",
  destination: "https://shop.example/hook",
  headers: [],
  verification: null,
  deduplicate: true,
  paused: false,
};

beforeEach(async () => {
  broker = await CommandRunner.open();
  source = await broker.run("createSource", { account: "acme", secretHash: "hash-1", ...setUp });
});

const current = (id = source.id): WebhookSource | undefined =>
  broker.memory.tables.sources.get(`acme\n${id}`);
const rejections = (): Rejection[] =>
  [...broker.memory.tables.rejections.values()].toSorted((a, b) => a.number - b.number);
const reject = (reason = "r", { id = source.id, account = "acme", others = 0 } = {}) =>
  broker.run("keepRejection", {
    account,
    id,
    others,
    reason,
    method: "POST",
    headers: [],
    callerIp: null,
    size: 5,
    body: bytes("hello"),
  });

test("a new source has nothing accepted and nothing rejected", () => {
  expect(source).toEqual({
    account: "acme",
    id: expect.stringMatching(/^src_/),
    secretHash: "hash-1",
    createdAt: noon,
    ...setUp,
    rejected: 0,
    kept: 0,
    keptUntil: 0,
    acceptedAt: null,
  });
});

test("a source needs an existing account", async () => {
  await expect(broker.run("createSource", { account: "gone", secretHash: "h", ...setUp })).rejects.toThrow(
    "unauthorized",
  );
});

describe("changing a source", () => {
  test("leaves settings that are not given as they are", async () => {
    const changed = await broker.run("changeSource", {
      account: "acme",
      id: source.id,
      change: { paused: true },
    });
    expect(changed).toEqual({ ...source, paused: true });
    expect(current()).toEqual(changed);
  });

  test("finds no source of another account", async () => {
    expect(
      await broker.run("changeSource", { account: "other", id: source.id, change: { paused: true } }),
    ).toBeNull();
    expect(await broker.run("deleteSource", { account: "other", id: source.id })).toEqual({ deleted: false });
    expect(current()).toEqual(source);
  });
});

describe("rejections", () => {
  test("are kept with their number, and with the number of those that were not kept", async () => {
    expect(await reject("bad", { others: 3 })).toEqual({ kept: true });
    expect(await reject("worse")).toEqual({ kept: true });
    expect(rejections()).toMatchObject([
      { time: noon, number: 0, others: 3, reason: "bad", size: 5, body: bytes("hello") },
      { number: 1, others: 0, reason: "worse" },
    ]);
    expect(current()).toMatchObject({ rejected: 5, kept: 2 });
  });

  test("are kept twenty at once, and then one per second", async () => {
    const keptOf = async (calls: number): Promise<number> => {
      let kept = 0;
      for (let call = 0; call < calls; call++) kept += (await reject()).kept ? 1 : 0;
      return kept;
    };
    expect(await keptOf(50)).toBe(20);
    broker.now += 999;
    expect(await keptOf(50)).toBe(0);
    broker.now += 1;
    expect(await keptOf(50)).toBe(1);
    broker.now += 5_000;
    expect(await keptOf(50)).toBe(5);
    broker.now += 3_600_000;
    expect(await keptOf(50)).toBe(20);
  });

  test("are kept again at once if the clock went back", async () => {
    broker.now += 3_600_000;
    await reject();
    broker.now = noon;
    expect(mayKeepRejection(current() ?? source, noon)).toBe(true);
    expect(await reject()).toEqual({ kept: true });
    expect(current()?.keptUntil).toBe(noon + 1_000);
  });

  test("replace the oldest ones if all places are taken", async () => {
    for (let call = 0; call < maxRejections + 30; call++) {
      await reject(`r${call}`);
      broker.now += 1_000;
    }
    expect(rejections().map(({ reason }) => reason)).toEqual(
      Array.from({ length: maxRejections }, (_, at) => `r${at + 30}`),
    );
    expect(current()).toMatchObject({ rejected: maxRejections + 30, kept: maxRejections + 30 });
  });

  test("of a source that does not exist are not kept", async () => {
    await broker.run("deleteSource", { account: "acme", id: source.id });
    expect(await reject()).toEqual({ kept: false });
    expect(rejections()).toEqual([]);
  });

  test("of a source of another account are not kept", async () => {
    expect(await reject("r", { account: "other" })).toEqual({ kept: false });
    expect(rejections()).toEqual([]);
  });

  test.each([1, maxRejections, maxRejections + 7])(
    "are removed with their source, and only with it: %i",
    async (calls) => {
      const other = await broker.run("createSource", { account: "acme", secretHash: "hash-2", ...setUp });
      await reject("of the other", { id: other.id });
      for (let call = 0; call < calls; call++) {
        await reject();
        broker.now += 1_000;
      }
      expect(rejections().length).toBe(Math.min(calls, maxRejections) + 1);
      expect(await broker.run("deleteSource", { account: "acme", id: source.id })).toEqual({ deleted: true });
      expect(current()).toBeUndefined();
      expect(rejections()).toMatchObject([{ reason: "of the other" }]);
      expect(await broker.run("deleteSource", { account: "acme", id: source.id })).toEqual({
        deleted: false,
      });
    },
  );

  test("are found by their own source only", () => {
    const { after, before } = rejectionRange("src_1");
    const isWithin = (id: string): boolean => id > after && id < before;
    expect(["src_1/00", "src_1/99"].map(isWithin)).toEqual([true, true]);
    expect(["src_1", "src_10/00", "src_2/00", "src_11", "src_1A/00"].map(isWithin)).toEqual([
      false,
      false,
      false,
      false,
      false,
    ]);
  });
});

test("an accepted call is recorded once a minute", async () => {
  const note = () => broker.run("noteAcceptance", { account: "acme", id: source.id });
  expect(await note()).toEqual({ noted: true });
  broker.now += 59_999;
  expect(await note()).toEqual({ noted: false });
  expect(current()?.acceptedAt).toBe(noon);
  broker.now += 1;
  expect(await note()).toEqual({ noted: true });
  expect(current()?.acceptedAt).toBe(noon + 60_000);
  expect(await broker.run("noteAcceptance", { account: "other", id: source.id })).toEqual({ noted: false });
});
