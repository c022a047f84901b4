import { expect, test } from "vitest";
import { StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** The flag that holds all deliveries. */
export function describeHold(open: OpenStore): void {
  test("the hold of all deliveries is kept until it is ended", async () => {
    const { store } = await StoreFixture.open(open);
    expect(await store.hold.isOnHold()).toBe(false);
    await store.hold.set(true);
    await store.hold.set(true);
    expect(await store.hold.isOnHold()).toBe(true);
    await store.hold.set(false);
    await store.hold.set(false);
    expect(await store.hold.isOnHold()).toBe(false);
  });
}
