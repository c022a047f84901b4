import { expect, test } from "vitest";
import { createAuthenticator } from "../../../src/api/auth/bearer.ts";
import { notAttempts } from "../../../src/api/auth/lockout.ts";
import { hashToken } from "../../../src/api/auth/token.ts";
import { Refusal } from "../../../src/engine/core/values/errors.ts";
import type { Store } from "../../../src/engine/store/store.ts";

const token = "token-1";
const tokens = (value = token) => ({
  authorization: `Bearer ${value}`,
  parameter: null,
  from: () => ({ client: "127.0.0.1" }) as never,
  attempts: notAttempts,
  isFresh: false,
});

/** Returns a store that can hang or be unavailable, and that counts look-ups. */
function openStore() {
  const state = { isInDoubt: false, isAway: false, asked: 0, now: 1_000_000, isRevoked: false };
  const held: (() => void)[] = [];
  let isHolding = false;
  let tellAccounts: () => void = () => undefined;
  const accountByToken = async (hash: string): Promise<unknown> => {
    state.asked++;
    if (isHolding) await new Promise<void>((resolve) => held.push(resolve));
    if (state.isAway) throw new Refusal("unavailable", "storage unavailable: retry later");
    return !state.isRevoked && hash === hashToken(token) ? { id: "acc", token } : null;
  };
  const store = {
    read: { accountByToken, tokenByHash: async () => null, account: async () => null },
    isInDoubt: () => state.isInDoubt,
    onAccounts: (listener: () => void) => void (tellAccounts = listener),
  };
  const auth = createAuthenticator({
    store: store as unknown as Store,
    now: () => state.now,
  });
  return {
    state,
    auth,
    tellAccounts: () => tellAccounts(),
    hold: () => (isHolding = true),
    release: () => {
      isHolding = false;
      for (const resolve of held.splice(0)) resolve();
    },
  };
}

test("all requests with the same token at the same time share one look-up", async () => {
  const { state, auth, hold, release } = openStore();
  hold();
  const asked = Array.from({ length: 50 }, () => auth.authenticate(tokens()));
  await Promise.resolve();
  release();
  for (const proof of await Promise.all(asked))
    expect(proof).toMatchObject({ account: { id: "acc" }, by: "header" });
  expect(state.asked).toBe(1);
});

test("a token stays valid for 60 s while the storage is unavailable; an unknown one gets 503", async () => {
  const { state, auth } = openStore();
  await auth.authenticate(tokens());
  Object.assign(state, { isAway: true, now: state.now + 59_999 });
  expect(await auth.authenticate(tokens())).toMatchObject({ account: { id: "acc" } });
  await expect(auth.authenticate(tokens("token-2"))).rejects.toMatchObject({ code: "unavailable" });
  state.now += 1;
  await expect(auth.authenticate(tokens())).rejects.toMatchObject({ code: "unavailable" });
});

test("a cached token is not looked up while the storage is in doubt", async () => {
  const { state, auth } = openStore();
  await auth.authenticate(tokens());
  Object.assign(state, { isInDoubt: true, now: state.now + 30_000 });
  expect(auth.getCached(tokens().authorization)).toMatchObject({ account: { id: "acc" } });
  state.isInDoubt = false;
  expect(auth.getCached(tokens().authorization)).toBe(null);
  expect(state.asked).toBe(1);
});

test("a revoked token is not cached, whether this node is notified or finds out by itself", async () => {
  const { state, auth, tellAccounts, hold, release } = openStore();
  await auth.authenticate(tokens());
  Object.assign(state, { isRevoked: true, now: state.now + 6_000 });
  await expect(auth.authenticate(tokens())).rejects.toMatchObject({ code: "unauthorized" });
  state.isAway = true;
  await expect(auth.authenticate(tokens())).rejects.toMatchObject({ code: "unavailable" });
  // Only requests from before the change may use a look-up that began before it.
  Object.assign(state, { isAway: false, isRevoked: false });
  hold();
  const before = auth.authenticate(tokens());
  await Promise.resolve();
  tellAccounts();
  state.isRevoked = true;
  const after = auth.authenticate(tokens());
  release();
  await Promise.allSettled([before, after]);
  await expect(after).rejects.toMatchObject({ code: "unauthorized" });
  expect(auth.getCached(tokens().authorization)).toBe(null);
});
