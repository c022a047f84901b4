import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import { maxLostAttempts } from "../../../src/engine/core/values/limits.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import { Claimer } from "../../../src/engine/delivery/claimer.ts";
import { sqliteStore } from "../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { callbackTo, makeInput, noon } from "../core/commandRunner.ts";

// A real database whose triggers refuse rows.

const second = 1000;
const minute = 60 * second;

let now: number;
let store: Store;
let tool: DatabaseSync;
let claims: Claimer;
/** Ids of messages whose delivery began. */
let begun: string[];
let troubles: string[];
let free: number;

beforeEach(async () => {
  now = noon;
  begun = [];
  troubles = [];
  free = 0;
  const folder = mkdtempSync(join(tmpdir(), "waypost-claims-"));
  const path = join(folder, "store.db");
  const random = (): number => 0.5;
  store = await sqliteStore(path, {
    node: "nod_a",
    now: () => now,
    random,
    newId: createIdGenerator(random),
  });
  tool = new DatabaseSync(path);
  store.attach({
    readCapacity: () => ({
      free,
      perHost: free,
      backlog: true,
      runningByLane: new Map(),
      bytes: { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} },
    }),
    deliver: ({ message }) => void begun.push(message.id),
    abort: () => undefined,
    renewLeases: () => undefined,
    settled: () => undefined,
    fault: (what) => void troubles.push(what),
  });
  const account = {
    id: "acme",
    name: "",
    password: "",
    token: "",
    tokenHash: "",
    signingKeys: { current: "", next: "" },
  };
  await store.execute("createAccount", account);
  claims = new Claimer({ store, now: () => now, logFailure: (what) => void troubles.push(what) });
  onTestFinished(async () => {
    await store.close();
    tool.close();
    rmSync(folder, { recursive: true });
  });
});

/** Publishes while there is no capacity, so that the message waits for a claim. */
async function publish(input: Partial<MessageInput> = {}): Promise<string> {
  const [result] = await store.execute("publish", { account: "acme", inputs: [makeInput(input)] });
  if (!result || !("messageId" in result)) throw new Error(JSON.stringify(result));
  return result.messageId;
}

const many = (count: number, input: Partial<MessageInput> = {}): Promise<string[]> =>
  Promise.all(Array.from({ length: count }, () => publish(input)));

let refusals = 0;
const refuse = (what: string, when: string): void =>
  tool.exec(
    `create trigger refusal_${++refusals} before ${what} when ${when} ` +
      "begin select raise(abort, 'row refused'); end",
  );

/** Claims until nothing more is due, apart from rows that are skipped. */
async function claimAll(): Promise<void> {
  free = 1000;
  for (let times = 1; times <= 20; times++) {
    const { more } = await claims.next({ limit: 64, hostWaitlists: 64, heads: 64 });
    if (!more) return;
  }
  throw new Error("claiming does not end");
}

/** Claims for longer than failing rows are retried. */
async function claimOn(): Promise<void> {
  for (let at = 0; at < 16; at++, now += second) await claimAll();
}

const deadLetters = async () => {
  const { entries } = await store.read.deadLetters({
    account: "acme",
    filter: {},
    order: "earliestFirst",
    cursor: null,
    count: 10,
  });
  return entries.map(({ deadLetter: { messageId, error } }) => [messageId, error]);
};

describe("a message whose row the storage refuses", () => {
  test("becomes a dead letter with the reason, and all others are sent", async () => {
    const before = await many(20);
    const poison = await publish();
    const after = await many(20);
    refuse("update on messages", `new.id = '${poison}'`);
    await claimAll();
    expect(begun.toSorted()).toEqual([...before, ...after].toSorted());
    expect(await deadLetters()).toEqual([]);
    await claimOn();
    expect(begun).toHaveLength(40);
    expect(await deadLetters()).toEqual([[poison, "could not be stored: row refused"]]);
    expect(troubles).toEqual([
      ...[1, 2, 4, 8].map(
        (pause) => `could not claim messages/${poison} of account acme; skipping it for ${pause} s`,
      ),
      `quarantined message ${poison} of account acme: its changes could not be stored`,
    ]);
    expect((await store.read.message("acme", poison))?.state).toBeNull();
  });

  test("is skipped for a while if it cannot be quarantined either, and the others are sent", async () => {
    const [poison, ...others] = await many(10);
    refuse("update on messages", `new.id = '${poison}'`);
    refuse("insert on log", `new.message_id = '${poison}'`);
    await claimOn();
    expect(begun.toSorted()).toEqual(others.toSorted());
    expect(troubles.at(-1)).toBe(`could not claim messages/${poison} of account acme; skipping it for 60 s`);
    const count = troubles.length;
    const later = await publish();
    await claimAll();
    expect(begun).toContain(later);
    expect(claims.hasPausedRows).toBe(true);
    tool.exec(`drop trigger refusal_${refusals}`);
    now += minute;
    await claimAll();
    expect(troubles).toHaveLength(count + 1);
    expect(await deadLetters()).toEqual([[poison, "could not be stored: row refused"]]);
    expect(claims.hasPausedRows).toBe(false);
  });

  test("is found if there are several", async () => {
    const all = await many(60);
    const poison = all.filter((_, index) => index % 7 === 3);
    refuse("update on messages", `new.id in (${poison.map((id) => `'${id}'`).join()})`);
    await claimAll();
    expect(begun.toSorted()).toEqual(all.filter((id) => !poison.includes(id)).toSorted());
    await claimOn();
    expect((await deadLetters()).map(([id]) => String(id)).toSorted()).toEqual(poison.toSorted());
  });

  test("is quarantined from the waitlist of its host, its key and its queue", async () => {
    const inputs: Partial<MessageInput>[] = [
      {},
      { flowControl: { key: "k", parallelism: 1, rate: null, period: null } },
      { queue: "q" },
    ];
    for (const input of inputs) {
      const [first, ...others] = await many(12, input);
      // They wait for the queue, the key or the host.
      free = 1;
      await store.execute("claim", { limit: 64 });
      begun = [];
      const poison = others[4] ?? "";
      refuse("update on messages", `new.id = '${poison}'`);
      for (const id of [first ?? "", ...others]) {
        for (let at = 0; at < 16 && !begun.includes(id); at++, now += second) await claimAll();
        const state = (await store.read.message("acme", id))?.state;
        if (!state) continue;
        const ended = {
          host: state.host,
          attempt: 0,
          status: 200,
          headers: [],
          body: new Uint8Array(),
          error: null,
          took: 1,
        };
        await store.execute("settle", { account: "acme", messageId: id, ...ended });
      }
      expect(begun).toEqual(others.filter((id) => id !== poison));
      expect((await deadLetters()).at(-1)).toEqual([poison, "could not be stored: row refused"]);
    }
  });
});

test("a callback that the storage refuses does not keep its message from failing for good", async () => {
  const lost = await publish({ failureCallback: callbackTo("https://refused.example/") });
  // The attempts are never settled. The others become due when this message fails for good.
  const others = await many(5, { delay: (maxLostAttempts + 1) * minute });
  refuse("insert on messages", `new.host = 'refused.example'`);
  for (let times = 0; times <= maxLostAttempts; times++, now += minute) await claimAll();
  expect(begun).toEqual(Array.from({ length: maxLostAttempts + 1 }, () => lost));
  begun = [];
  await claimAll();
  expect(begun.toSorted()).toEqual(others.toSorted());
  await claimOn();
  expect(await deadLetters()).toEqual([[lost, "could not be stored: row refused"]]);
});

test("a schedule whose firing the storage refuses skips that firing, and other schedules fire", async () => {
  const { body, ...input } = makeInput();
  for (const id of ["a", "refused", "z"]) {
    const url = `https://${id}.example/`;
    await store.execute("createSchedule", {
      account: "acme",
      id,
      cron: "* * * * *",
      messageInput: { ...input, url },
      body,
    });
  }
  refuse("insert on messages", `new.host = 'refused.example'`);
  for (const times of [1, 2]) {
    now = noon + times * minute;
    await claimAll();
    expect(new Set(begun).size).toBe(2 * times);
    await claimOn();
    expect(troubles.at(-1)).toBe(
      "quarantined a firing of schedule refused of account acme: its changes could not be stored",
    );
    const schedule = await store.read.findResource("schedules", "acme", "refused");
    expect(schedule).toMatchObject({ paused: false, dueAt: noon + (times + 1) * minute, lastMessages: [] });
  }
});

test("if the storage refuses every row, no message is lost and claims pause", async () => {
  const ids = await many(50);
  refuse("update on messages", "true");
  refuse("delete on messages", "true");
  free = 1000;
  for (let at = 0; at < 60; at++, now += second) {
    const before = troubles.length;
    await claims.next({ limit: 64, hostWaitlists: 64, heads: 64 }).catch(() => undefined);
    expect(troubles.length - before).toBeLessThanOrEqual(32);
  }
  for (const id of ids)
    expect((await store.read.message("acme", id))?.state).toMatchObject({ state: "pending" });
});
