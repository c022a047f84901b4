import { expect, test } from "vitest";
import type { OpenStore } from "../storeFixture.ts";
import { makeAccount, StoreFixture } from "../storeFixture.ts";

const asked = {
  name: "ü",
  verbs: ["publish"],
  destinations: ["https://one.example/*"],
  expiresAt: null,
} as const;

/** Additional tokens of an account. */
export function describeTokens(open: OpenStore): void {
  test("a token is found by its hash until it is revoked; its last use is exact to the minute", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { store, clock } = fixture;
    const token = await store.execute("createToken", {
      account: "acc",
      hash: "first",
      scope: null,
      ...asked,
    });
    expect(token).toMatchObject({ ...asked, createdAt: clock.now, usedAt: null, madeBy: null });
    expect(await store.read.tokenByHash("first")).toEqual(token);
    expect(await store.read.tokenByHash("second")).toBeNull();
    expect(await store.read.listResources("tokens", { account: "acc", limit: 10 })).toEqual([token]);
    const named = { account: "acc", id: token.id };
    const use = () => store.execute("noteTokenUse", named);
    expect([await use(), await use()]).toEqual([{ noted: true }, { noted: false }]);
    clock.now += 60_000;
    expect(await use()).toEqual({ noted: true });
    expect(await store.read.findResource("tokens", "acc", token.id)).toEqual({ ...token, usedAt: clock.now });
    expect(await store.execute("revokeToken", { ...named, account: "other" })).toEqual({ revoked: false });
    expect([await store.execute("revokeToken", named), await store.execute("revokeToken", named)]).toEqual([
      { revoked: true },
      { revoked: false },
    ]);
    expect(await use()).toEqual({ noted: false });
    expect(await store.read.tokenByHash("first")).toBeNull();
  });

  test("listeners are notified when a token is revoked, but not when it is used", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { store } = fixture;
    const { id } = await store.execute("createToken", { account: "acc", hash: "h", scope: null, ...asked });
    let heard = 0;
    store.onAccounts(() => heard++);
    await store.execute("noteTokenUse", { account: "acc", id });
    expect(heard).toBe(0);
    await store.execute("revokeToken", { account: "acc", id });
    expect(heard).toBe(1);
  });

  test("rewritten rows stay the same, and missing rows are skipped", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { store } = fixture;
    await store.execute("createAccount", makeAccount("other"));
    const setUp = {
      name: "s",
      destination: "https://one.example/",
      headers: [],
      deduplicate: true,
      paused: false,
    };
    const source = await store.execute("createSource", {
      account: "acc",
      secretHash: "h",
      verification: { scheme: "github", secret: "s" },
      ...setUp,
    });
    const before = await store.read.accounts();
    const all = {
      accounts: ["acc", "other", "none"],
      sources: [["acc", source.id] as const, ["acc", "src_none"] as const],
      settings: ["alerts"],
    };
    expect(await store.execute("rewrite", all)).toEqual({ rewritten: 3 });
    expect(await store.read.accounts()).toEqual(before);
    expect(await store.read.findResource("sources", "acc", source.id)).toEqual(source);
  });
}
