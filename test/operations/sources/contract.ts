import type { WholeCall } from "../../../src/operations/sources/keptCall.ts";
import { expect, test } from "vitest";
import { maxRejections, rejectionRange } from "../../../src/operations/sources/commands.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { makeInput, StoreFixture } from "../../engine/store/storeFixture.ts";

const verification = { scheme: "github", secret: ["one", "zwei ü"] };
const setUp = {
  name: "ü",
  destination: "https://one.example/",
  headers: [["Svc-Retries", "1"] as const],
  deduplicate: true,
  paused: false,
};

/** Sources, and the calls that they rejected. */
export function describeSources(open: OpenStore): void {
  test("a source is found by its secret until the secret changes or the source is removed", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { store } = fixture;
    const source = await store.execute("createSource", {
      account: "acc",
      secretHash: "first",
      verification,
      ...setUp,
    });
    expect(source).toMatchObject({ verification, ...setUp });
    expect(await store.read.sourceBySecret("first")).toEqual(source);
    const changed = await store.execute("changeSource", {
      account: "acc",
      id: source.id,
      change: { secretHash: "second", paused: true },
    });
    expect(await store.read.sourceBySecret("first")).toBeNull();
    expect(await store.read.sourceBySecret("second")).toEqual({
      ...source,
      secretHash: "second",
      paused: true,
    });
    expect(await store.read.findResource("sources", "acc", source.id)).toEqual(changed);
    expect(await store.execute("deleteSource", { account: "acc", id: source.id })).toEqual({ deleted: true });
    expect(await store.read.sourceBySecret("second")).toBeNull();
  });

  test("accepted calls are counted for each source, and the counts are removed with it", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    await fixture.account("other");
    const { store } = fixture;
    const [one, two] = await Promise.all(
      ["first", "second"].map((secretHash) =>
        store.execute("createSource", { account: "acc", secretHash, verification, ...setUp }),
      ),
    );
    const ids = [one?.id ?? "", two?.id ?? ""] as const;
    const accept = (source: string, overrides = {}) =>
      store.execute("publish", { account: "acc", inputs: [makeInput(overrides)], source });
    const read = async () => Object.fromEntries(await store.read.sourceCalls("acc", ids));
    expect(await read()).toEqual({});
    await Promise.all([...Array(5).keys()].map(() => accept(ids[0])));
    await accept(ids[1], { deduplication: "event" });
    await accept(ids[1], { deduplication: "event" });
    await accept(ids[1], { group: "none" });
    expect(await read()).toEqual({ [ids[0]]: 5, [ids[1]]: 2 });
    expect((await store.read.sourceCalls("other", ids)).size).toBe(0);
    await store.execute("deleteSource", { account: "acc", id: ids[0] });
    expect(await read()).toEqual({ [ids[1]]: 2 });
  });

  test("rejected calls are kept in a ring of fixed size and are removed with their source", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const { store, clock } = fixture;
    const one = await createSource(store, "one");
    const other = await createSource(store, "other");
    await rejectCall(store, other, ["of the other"]);
    const kept = await Promise.all(
      Array.from({ length: 60 }, (_, call) => rejectCall(store, one, [`at once ${call}`])),
    );
    expect(kept.filter((answer) => answer.kept)).toHaveLength(20);
    clock.now += 20_000;
    for (let call = 0; call < maxRejections; call++) {
      await rejectCall(store, one, [`r${call}`]);
      clock.now += 1_000;
    }
    const found = await readRejections(store, one);
    expect(found.map(({ reason }) => reason).toSorted()).toEqual(
      Array.from({ length: maxRejections }, (_, call) => `r${call}`).toSorted(),
    );
    expect(found[0]).toMatchObject({ headers: [["A", "b"]], size: 9, others: 0 });
    expect([...(found[0]?.body ?? [])]).toEqual([0, 255, 10]);
    await store.execute("deleteSource", { account: "acc", id: one });
    expect(await readRejections(store, one)).toEqual([]);
    expect(await readRejections(store, other)).toMatchObject([{ reason: "of the other" }]);
  });

  test("a rejected call is kept whole for a day, and is removed with its source", async () => {
    const fixture = await StoreFixture.open(open);
    const { store, clock } = fixture;
    await fixture.account();
    const id = await createSource(store, "h1");
    const whole = {
      ...{ url: "https://q.example/v2/in/s", secret: "s", headers: ["A", "b"], callerIp: "192.0.2.1" },
      body: new Uint8Array([0, 255, 10]),
    };
    await rejectCall(store, id, ["not kept whole", whole]);
    await store.execute("changeSource", { account: "acc", id, change: { keepsRejected: true } });
    await rejectCall(store, id, ["kept", whole]);
    expect(await store.read.keptCall("acc", id, 0)).toBeNull();
    const kept = await store.read.keptCall("acc", id, 1);
    expect(kept).toMatchObject({ time: clock.now, dueAt: clock.now + day });
    expect({ ...kept?.whole, body: [...(kept?.whole.body ?? [])] }).toEqual({ ...whole, body: [0, 255, 10] });
    expect(await store.read.keptCall("other", id, 1)).toBeNull();
    expect(await store.read.dueKeptCalls(clock.now + day, 10)).toEqual([kept]);
    const remove = { account: "acc", ids: [kept?.id ?? ""] };
    expect(await store.execute("removeKeptCalls", remove)).toEqual({ removed: 0 });
    clock.now += day;
    expect(await store.execute("removeKeptCalls", remove)).toEqual({ removed: 1 });
    expect(await store.read.findResource("sources", "acc", id)).not.toHaveProperty("keptCalls");
    await rejectCall(store, id, ["kept again", whole]);
    expect((await store.read.findResource("sources", "acc", id))?.keptCalls).toMatchObject([{ number: 2 }]);
    expect(await store.read.keptCall("acc", id, 2)).not.toBeNull();
    await store.execute("deleteSource", { account: "acc", id });
    expect(await store.read.keptCall("acc", id, 2)).toBeNull();
  });
}

const day = 86_400_000;

const createSource = async (store: Store, secretHash: string): Promise<string> =>
  (await store.execute("createSource", { account: "acc", secretHash, verification, ...setUp })).id;

const rejectCall = (store: Store, id: string, [reason, whole]: readonly [string, WholeCall?]) =>
  store.execute("keepRejection", {
    ...(whole && { whole }),
    account: "acc",
    id,
    others: 0,
    reason,
    method: "POST",
    headers: [["A", "b"]],
    callerIp: null,
    size: 9,
    body: new Uint8Array([0, 255, 10]),
  });

const readRejections = (store: Store, id: string) =>
  store.read.listResources("rejections", { account: "acc", ...rejectionRange(id), limit: 1000 });
