import { expect, test } from "vitest";
import { places, rejectionsOf } from "../../../src/core/commands/source.ts";
import type { Store } from "../../../src/store/store.ts";
import type { OpenStore } from "../world.ts";
import { World } from "../world.ts";

const verification = { scheme: "github", secret: ["one", "zwei ü"] };
const setUp = {
  ...{ name: "ü", destination: "https://one.example/", headers: [["Svc-Retries", "1"] as const], deduplicate: true, paused: false },
};

/** What sources and the calls that they rejected need of a store. */
export function describeSources(open: OpenStore): void {
  test("a source is found by its secret, until that is another one, or the source is gone", async () => {
    const world = await World.open(open);
    await world.account();
    const { store } = world;
    const source = await store.execute("createSource", { account: "acc", secretHash: "first", verification, ...setUp });
    expect(source).toMatchObject({ verification, ...setUp });
    expect(await store.read.sourceBySecret("first")).toEqual(source);
    const changed = await store.execute("changeSource", { account: "acc", id: source.id, change: { secretHash: "second", paused: true } });
    expect(await store.read.sourceBySecret("first")).toBeNull();
    expect(await store.read.sourceBySecret("second")).toEqual({ ...source, secretHash: "second", paused: true });
    expect(await store.read.setUp("sources", "acc", source.id)).toEqual(changed);
    expect(await store.execute("deleteSource", { account: "acc", id: source.id })).toEqual({ deleted: true });
    expect(await store.read.sourceBySecret("second")).toBeNull();
  });

  test("rejected calls are kept in a ring, as many as may be, and go with their source", async () => {
    const world = await World.open(open);
    await world.account();
    const { store, clock } = world;
    const [one, other] = [await made(store, "one"), await made(store, "other")];
    await reject(store, other, "of the other");
    const kept = await Promise.all(Array.from({ length: 60 }, (_, call) => reject(store, one, `at once ${call}`)));
    expect(kept.filter((answer) => answer.kept)).toHaveLength(20);
    clock.now += 20_000;
    for (let call = 0; call < places; call++) {
      await reject(store, one, `r${call}`);
      clock.now += 1_000;
    }
    const found = await rejections(store, one);
    expect(found.map(({ reason }) => reason).toSorted()).toEqual(Array.from({ length: places }, (_, call) => `r${call}`).toSorted());
    expect(found[0]).toMatchObject({ headers: [["A", "b"]], size: 9, others: 0 });
    expect([...(found[0]?.body ?? [])]).toEqual([0, 255, 10]);
    await store.execute("deleteSource", { account: "acc", id: one });
    expect(await rejections(store, one)).toEqual([]);
    expect(await rejections(store, other)).toMatchObject([{ reason: "of the other" }]);
  });
}

const made = async (store: Store, secretHash: string): Promise<string> =>
  (await store.execute("createSource", { account: "acc", secretHash, verification, ...setUp })).id;

const reject = (store: Store, id: string, reason: string) =>
  store.execute("keepRejection", {
    ...{ account: "acc", id, others: 0, reason, method: "POST", headers: [["A", "b"]], callerIp: null },
    ...{ size: 9, body: new Uint8Array([0, 255, 10]) },
  });

const rejections = (store: Store, id: string) => store.read.allSetUp("rejections", { account: "acc", ...rejectionsOf(id), limit: 1000 });
