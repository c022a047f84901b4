import { beforeEach, describe, expect, test } from "vitest";
import { shouldNoteUse } from "../../../../src/engine/core/commands/token.ts";
import type { Scope } from "../../../../src/engine/core/model/rights.ts";
import { CommandRunner, noon } from "../commandRunner.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const asked = {
  name: "ci",
  verbs: ["read", "publish"] as const,
  destinations: [] as string[],
  expiresAt: null,
};
const create = (more: object = {}) =>
  broker.run("createToken", { account: "acme", hash: "h", scope: null, ...asked, ...more });
const many = (count: number): string[] => Array.from({ length: count }, (_, n) => `https://${n}.example/`);
const token = (id: string) => broker.memory.tables.tokens.get(`acme\n${id}`);

test("a token is stored as requested, with its verbs in order and each pattern once", async () => {
  const made = await create({
    destinations: ["https://a.example/*", "https://a.example/*"],
    expiresAt: noon + 1,
  });
  expect(made).toMatchObject({
    account: "acme",
    hash: "h",
    name: "ci",
    verbs: ["publish", "read"],
    destinations: ["https://a.example/*"],
    createdAt: noon,
    expiresAt: noon + 1,
    usedAt: null,
    madeBy: null,
  });
  expect(token(made.id)).toEqual(made);
});

test.each([
  [{ name: "n".repeat(513) }, "name: exceeds the limit of 512 characters"],
  [{ verbs: [] }, "verbs: empty; use one or more of publish, read, manage"],
  [{ expiresAt: noon }, "expires: in the past; use a later time"],
  [{ destinations: many(33) }, "destinations: 33 exceeds the limit of 32; patterns can end in a star"],
  [
    { verbs: ["read"], destinations: ["https://a.example/"] },
    "destinations: requires the verb publish or receive",
  ],
  [
    { verbs: ["publish", "manage"], destinations: ["https://a.example/"] },
    "destinations: not valid with the verb manage",
  ],
])("a token with %o is refused as invalid", async (more, problem) => {
  const refusal = create(more);
  await expect(refusal).rejects.toThrow(problem);
  await expect(refusal).rejects.toThrow('"invalid"');
});

test("the exact limits are accepted", async () => {
  await expect(create({ name: "n".repeat(512), expiresAt: noon + 1 })).resolves.toMatchObject({
    expiresAt: noon + 1,
  });
  const destinations = many(32);
  await expect(create({ destinations })).resolves.toMatchObject({ destinations });
  await expect(create({ verbs: ["manage"] })).resolves.toMatchObject({ verbs: ["manage"] });
});

describe("a token that creates another token", () => {
  const scope: Scope = { id: "tok_1", verbs: ["publish", "manage"], destinations: [], expiresAt: noon + 10 };

  test("is named in the new token, and gives rights that it has, until it expires", async () => {
    await expect(create({ scope, verbs: ["publish"], expiresAt: noon + 10 })).resolves.toMatchObject({
      madeBy: "tok_1",
    });
    await expect(create({ scope: { ...scope, expiresAt: null }, verbs: ["publish"] })).resolves.toMatchObject(
      { expiresAt: null },
    );
  });

  test.each([
    [
      { verbs: ["read"] },
      "verbs: this token does not have the verb read, so it cannot give it to another token",
    ],
    [
      { verbs: ["publish"], expiresAt: noon + 11 },
      "expires: later than this token expires; use an earlier time",
    ],
    [{ verbs: ["publish"], expiresAt: null }, "expires: later than this token expires; use an earlier time"],
  ])("cannot give %j", async (more, problem) => {
    const refusal = create({ scope, ...more });
    await expect(refusal).rejects.toThrow(problem);
    await expect(refusal).rejects.toThrow('"forbidden"');
  });
});

test("revoking a token twice revokes it once", async () => {
  const { id } = await create();
  expect(await broker.run("revokeToken", { account: "acme", id })).toEqual({ revoked: true });
  expect(token(id)).toBeUndefined();
  expect(await broker.run("revokeToken", { account: "acme", id })).toEqual({ revoked: false });
});

test("the use of a token is recorded once a minute", async () => {
  const { id } = await create();
  const use = () => broker.run("noteTokenUse", { account: "acme", id });
  expect(await use()).toEqual({ noted: true });
  expect(token(id)?.usedAt).toBe(noon);
  broker.now = noon + 59_999;
  expect(await use()).toEqual({ noted: false });
  broker.now = noon + 60_000;
  expect(await use()).toEqual({ noted: true });
  expect(token(id)?.usedAt).toBe(noon + 60_000);
  expect(await broker.run("noteTokenUse", { account: "acme", id: "tok_none" })).toEqual({ noted: false });
  expect(
    [null, noon - 60_000, noon + 60_000, noon - 59_999].map((usedAt) => shouldNoteUse({ usedAt }, noon)),
  ).toEqual([true, true, true, false]);
});
