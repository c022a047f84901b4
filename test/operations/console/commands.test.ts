import { beforeEach, expect, test } from "vitest";
import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import { maxSessions, sessionSpan } from "../../../src/engine/core/model/consoleSession.ts";
import { CommandRunner, noon } from "../../engine/core/commandRunner.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const account = () => broker.memory.tables.accounts.values().find(({ id }) => id === "acme");
const open = (hash: string, more: Partial<CommandInput<"openSession">> = {}) =>
  broker.run("openSession", {
    account: "acme",
    tokenHash: account()?.tokenHash ?? "",
    hash,
    name: "m",
    credential: { kind: "main" },
    ...more,
  });
const hashes = () => account()?.sessions?.map(({ hash }) => hash);

test("a session is stored with its account, and replaces those that have expired", async () => {
  const opened = await open("one");
  expect(opened).toEqual({
    hash: "one",
    name: "m",
    credential: { kind: "main" },
    openedAt: noon,
    expiresAt: noon + sessionSpan,
  });
  await open("two");
  expect(hashes()).toEqual(["one", "two"]);
  broker.now += sessionSpan;
  await open("three");
  expect(hashes()).toEqual(["three"]);
});

test("an account keeps its newest sessions", async () => {
  for (let at = 0; at <= maxSessions; at++) await open(`s${at}`);
  expect(hashes()?.length).toBe(maxSessions);
  expect(hashes()?.[0]).toBe("s1");
});

test.each([
  { credential: { kind: "readOnly" as const } },
  { credential: { kind: "token" as const, id: "tok_1" } },
])("many sessions of $credential end at most one of another credential", async ({ credential }) => {
  await open("oldest", { credential: { kind: "password" } });
  for (let at = 1; at < maxSessions; at++)
    await open(`s${at}`, { credential: { kind: "token", id: "tok_2" } });
  for (let at = 0; at < 3; at++) await open(`own${at}`, { credential });
  expect(hashes()).toEqual([...Array.from({ length: maxSessions - 1 }, (_, at) => `s${at + 1}`), "own2"]);
});

test("a session ends once", async () => {
  await open("one");
  await open("two");
  const close = (hash: string) => broker.run("closeSession", { account: "acme", hash });
  expect([await close("one"), await close("one"), await close("none")]).toEqual([
    { closed: true },
    { closed: false },
    { closed: false },
  ]);
  expect(hashes()).toEqual(["two"]);
});

test("a credential that was replaced after its check opens nothing", async () => {
  await expect(open("one", { tokenHash: "hash of the old token" })).rejects.toThrow("were just replaced");
  expect(hashes()).toBeUndefined();
});

test("all sessions end when the token is replaced, and other changes end none", async () => {
  await open("one");
  await broker.run("changeAccount", { account: "acme", change: { customerId: "c" } });
  expect(hashes()).toEqual(["one"]);
  await broker.run("rotateToken", { account: "acme", password: "p", token: "t", tokenHash: "h" });
  expect(hashes()).toBeUndefined();
});
