import { expect, test } from "vitest";
import { findSession, sessionSpan } from "../../../src/engine/core/model/consoleSession.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { StoreFixture } from "../../engine/store/storeFixture.ts";

/** Sessions of the web console. */
export function describeSessions(open: OpenStore): void {
  test("a session is found in its account until it ends", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { store, clock } = fixture;
    const asked = {
      account: "acc",
      hash: "h",
      name: "maría",
      credential: { kind: "token", id: "t" },
    } as const;
    const tokenHash = (await store.read.account("acc"))?.tokenHash ?? "";
    const session = await store.execute("openSession", { ...asked, tokenHash });
    const find = async (now: number) => findSession((await store.read.account("acc"))?.sessions, "h", now);
    expect(await find(clock.now)).toEqual(session);
    expect(await find(clock.now + sessionSpan)).toBeNull();
    expect(await store.execute("closeSession", { account: "acc", hash: "h" })).toEqual({ closed: true });
    expect(await find(clock.now)).toBeNull();
  });
}
