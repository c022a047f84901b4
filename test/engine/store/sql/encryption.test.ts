import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import type { CommandName, CommandInput } from "../../../../src/engine/store/catalog/commands.ts";
import { countKeyUse, reencrypt, writeKeys } from "../../../../src/settings/encryptionKeys.ts";
import type { KeySource } from "../../../../src/engine/store/layout/keyRing.ts";
import { makeKeyLine, parseKeyRing, createCipher } from "../../../../src/engine/store/layout/keyRing.ts";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { StorageRefused } from "../../../../src/engine/store/layout/storageErrors.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { ask } from "../postgres/postgresDatabase.ts";
import {
  makeAccount,
  closeAfterTest,
  createTestFolder,
  makeInput,
  createSteppedClock,
  createSource,
  TestClock,
} from "../storeFixture.ts";

const one = makeKeyLine(1);
const two = makeKeyLine(2);
const secrets = {
  password: "Passwort-im-Klartext",
  token: "Token-im-Klartext",
  signingKeys: { current: "sig_Jetzt", next: "sig_Danach" },
};
const hidden = [
  "Passwort-im-Klartext",
  "Token-im-Klartext",
  "sig_Jetzt",
  "sig_Danach",
  "whsec_Quelle",
  "alerts.example",
  "alertsecret",
];
const verification = { scheme: "github", secret: "whsec_Quelle" };

async function fill(store: Store, accounts = 1, from = 0): Promise<void> {
  for (let at = from; at < accounts; at++) {
    const id = `acc${at}`;
    await store.execute("createAccount", { ...makeAccount(id), ...secrets, tokenHash: `hash ${id}` });
    const setUp = {
      account: id,
      secretHash: `s ${id}`,
      verification,
      name: "",
      destination: "https://one.example/",
      headers: [],
    };
    await store.execute("createSource", { ...setUp, deduplicate: true, paused: false });
  }
}

const open = async (path: string, keys: KeySource): Promise<Store> =>
  closeAfterTest(await sqliteStore(path, createSource(new TestClock(), "nod_a"), { keys }));

const storedIn = (path: string): string =>
  readdirSync(dirname(path))
    .map((name) => readFileSync(join(dirname(path), name), "latin1"))
    .join("");

describe("a store with keys", () => {
  test("encrypts all secrets in all of its files and returns them unchanged", async () => {
    const path = join(createTestFolder(), "store.db");
    const store = await open(path, { keyRing: one });
    await fill(store);
    expect(await store.read.account("acc0")).toMatchObject(secrets);
    expect(await store.read.accountByToken("hash acc0")).toMatchObject(secrets);
    expect(await store.read.sourceBySecret("s acc0")).toMatchObject({ verification });
    await store.execute("changeAccount", { account: "acc0", change: { plan: "free" } });
    const rotated = await store.execute("rotateKeys", { account: "acc0" });
    expect((await store.read.account("acc0"))?.signingKeys).toEqual(rotated);
    const url = "https://alerts.example/hook";
    const secret = "whsec_alertsecret";
    const alerts = { url, after: 60_000, events: ["disk.low"], secret } as const;
    await store.execute("setAlerts", { account: "acc0", alerts });
    const serverAlerts = { url, events: ["disk.low"], secret } as const;
    await store.execute("setServerAlerts", { alerts: serverAlerts });
    expect(await store.read.serverAlerts()).toEqual(serverAlerts);
    expect((await store.read.account("acc0"))?.alerts).toEqual(alerts);
    expect((await store.read.account("acc0"))?.lastRotation?.key, "the old key signs for one more day").toBe(
      "sig_Jetzt",
    );
    const stored = storedIn(path);
    expect(stored).toContain("hash acc0");
    expect([...hidden, rotated.next].filter((secret) => stored.includes(secret))).toEqual([]);
  });

  test("signs deliveries with the keys of the account", async () => {
    const store = await open(join(createTestFolder(), "store.db"), { keyRing: one });
    await fill(store);
    const signedWith: (string | null)[] = [];
    const bytes = { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} };
    store.attach({
      readCapacity: () => ({ free: 10, perHost: 10, backlog: false, runningByLane: new Map(), bytes }),
      deliver: ({ signingKey }) => void signedWith.push(signingKey),
      abort: () => undefined,
      renewLeases: () => undefined,
      settled: () => undefined,
      fault: () => undefined,
    });
    await store.execute("publish", { account: "acc0", inputs: [makeInput()] });
    expect(signedWith).toEqual(["sig_Jetzt"]);
  });

  test("reads unencrypted secrets of an older server and encrypts them on the next change", async () => {
    const path = join(createTestFolder(), "store.db");
    const older = await sqliteStore(path, createSource(new TestClock(), "nod_a"));
    await fill(older, 2);
    await older.close();
    const store = await open(path, { keyRing: one });
    expect(await store.read.account("acc0")).toMatchObject(secrets);
    expect(Object.fromEntries(await countKeyUse(store.read))).toEqual({ clear: 4 });
    await store.execute("changeAccount", { account: "acc0", change: { plan: "free" } });
    expect(Object.fromEntries(await countKeyUse(store.read))).toEqual({ clear: 3, 1: 1 });
    expect(await reencrypt(store, { keyRing: one })).toBe(3);
    expect(Object.fromEntries(await countKeyUse(store.read))).toEqual({ 1: 4 });
    expect(await store.read.sourceBySecret("s acc1")).toMatchObject({ verification });
  });

  test("is encrypted with a new key while in use and then no longer needs the old key", async () => {
    const folder = createTestFolder();
    const path = join(folder, "store.db");
    const file = join(createTestFolder(), "keys");
    writeKeys(file, [one]);
    const store = await open(path, { file });
    const reader = openSqlite(path, { readOnly: true, keys: { file } });
    await fill(store, 3);
    writeKeys(file, [two, one]);
    await fill(store, 4, 3);
    expect(Object.fromEntries(await countKeyUse(store.read)), "those that are there already stay").toEqual({
      1: 6,
      2: 2,
    });
    expect(await reencrypt(store, { file })).toBe(6);
    expect(Object.fromEntries(await countKeyUse(store.read))).toEqual({ 2: 8 });
    writeKeys(file, [two]);
    for (let at = 0; at < 4; at++) expect(await store.read.account(`acc${at}`)).toMatchObject(secrets);
    reader.close();
    const again = await open(path, { keyRing: two });
    expect(await again.read.sourceBySecret("s acc3")).toMatchObject({ verification });
  });

  test("continues an interrupted re-encryption", async () => {
    const path = join(createTestFolder(), "store.db");
    const before = await sqliteStore(path, createSource(new TestClock(), "nod_a"), {
      keys: { keyRing: one },
    });
    await fill(before, 250);
    await before.close();
    const keyRing = `${two},${one}`;
    const breaking = await sqliteStore(path, createSource(new TestClock(), "nod_a"), { keys: { keyRing } });
    let calls = 0;
    const execute = <N extends CommandName>(name: N, input: CommandInput<N>) => {
      if (++calls > 1) throw new Error("killed");
      return breaking.execute(name, input);
    };
    await expect(reencrypt({ ...breaking, execute }, { keyRing })).rejects.toThrow("killed");
    await breaking.close();
    const store = await open(path, { keyRing });
    expect(Object.fromEntries(await countKeyUse(store.read))).toEqual({ 1: 300, 2: 200 });
    for (const { id } of await store.read.accounts())
      expect(await store.read.account(id)).toMatchObject(secrets);
    expect(await reencrypt(store, { keyRing })).toBe(300);
    expect(await reencrypt(store, { keyRing })).toBe(0);
    expect(Object.fromEntries(await countKeyUse(store.read))).toEqual({ 2: 500 });
  });

  test.each([
    [
      "no keys",
      null,
      /keys: missing, but secrets are encrypted with key 1; set WAYPOST_KEYS or WAYPOST_KEYS_FILE/,
    ],
    ["keys without the one it needs", { keyRing: two }, /key 1 is missing; it encrypted account acc0/],
    ["another key of the same version", { keyRing: makeKeyLine(1) }, /key 1 cannot decrypt account acc0/],
  ])("reports %s and changes nothing", async (_, keys, said) => {
    const path = join(createTestFolder(), "store.db");
    const before = await sqliteStore(path, createSource(new TestClock(), "nod_a"), {
      keys: { keyRing: one },
    });
    await fill(before);
    await before.close();
    const wrong = await open(path, keys);
    await expect(wrong.read.accounts()).rejects.toThrow(StorageRefused);
    await expect(wrong.read.accounts()).rejects.toThrow(said);
    await expect(wrong.read.sourceBySecret("s acc0")).rejects.toThrow(StorageRefused);
    await expect(
      wrong.execute("changeAccount", { account: "acc0", change: { plan: "free" } }),
    ).rejects.toThrow(said);
    const right = await open(path, { keyRing: one });
    expect(await right.read.account("acc0")).toMatchObject(secrets);
  });
});

describe("an encrypted secret", () => {
  const seals = createCipher({ keyRing: one });

  test("is decrypted only for the row and the field that it was encrypted for", () => {
    const sealed = seals.encrypt({ a: "ü" }, "account a secrets") ?? "";
    expect(seals.decrypt(sealed, "account a secrets")).toEqual({ a: "ü" });
    expect(seals.decrypt(sealed, "account a secrets"), "remembered").toEqual({ a: "ü" });
    for (const other of ["account b secrets", "account a source s verification", ""])
      expect(() => seals.decrypt(sealed, other)).toThrow(StorageRefused);
  });

  test("cannot be decrypted after any byte was altered", () => {
    const sealed = seals.encrypt("secret", "x") ?? "";
    const [version, text = ""] = sealed.split(".");
    const bytes = Buffer.from(text, "base64");
    for (let at = 0; at < bytes.length; at++) {
      const altered = Buffer.from(bytes);
      altered[at] = (altered[at] ?? 0) ^ 1;
      expect(() => seals.decrypt(`${version}.${altered.toString("base64")}`, "x"), `byte ${at}`).toThrow(
        StorageRefused,
      );
    }
    for (const broken of ["", "1", "1.", `1.${bytes.subarray(0, 20).toString("base64")}`, `2.${text}`])
      expect(() => seals.decrypt(broken, "x")).toThrow(StorageRefused);
  });

  test("has a different text each time it is encrypted", () => {
    expect(seals.encrypt("secret", "x")).not.toBe(seals.encrypt("secret", "x"));
  });
});

describe("a key ring", () => {
  test("is read from a setting or from a file with comments", () => {
    expect(parseKeyRing(`${two},${one}`, "x").map(({ version }) => version)).toEqual([2, 1]);
    expect(
      parseKeyRing(`# one, two; three\n ${two} # new\n\n${one}\n`, "x").map(({ version }) => version),
    ).toEqual([2, 1]);
  });

  test.each([
    ["", /x: contains no key; "waypost keys new" prints a new key/],
    ["# nothing", /x: contains no key/],
    ["1:short", /x: key 1 is invalid; use the form/],
    [`${one},0:${one.slice(2)}`, /x: key 2 is invalid; use the form/],
    [`${one},${makeKeyLine(1)}`, /x: two keys have the same version/],
  ])("is refused as %s, without its content in the error", (written, said) => {
    expect(() => parseKeyRing(written, "x")).toThrow(said);
    try {
      parseKeyRing(written, "x");
    } catch (error) {
      expect(String(error)).not.toContain(one.slice(2, 20));
    }
  });

  test("is written atomically, readable only by its user, by one process at a time", () => {
    const file = join(createTestFolder(), "keys");
    writeKeys(file, [one]);
    writeFileSync(`${file}.new`, "");
    expect(() => writeKeys(file, [two, one])).toThrow(/keys\.new: cannot be written \(it already exists\)/);
    expect(parseKeyRing(readFileSync(file, "utf8"), file)).toHaveLength(1);
    rmSync(`${file}.new`);
    writeKeys(file, [two, one]);
    expect(parseKeyRing(readFileSync(file, "utf8"), file)).toHaveLength(2);
  });
});

test("nodes of PostgreSQL take a new key ring one after another and re-encrypt while both run", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const node = async (name: string, keys: KeySource, seed: number): Promise<Store> =>
    closeAfterTest(
      await postgresStore({
        url,
        node: name,
        random: createRandom(seed),
        clock: createSteppedClock(clock),
        now: () => clock.now,
        keys,
      }),
    );
  const old = await node("nod_a", { keyRing: one }, 1);
  await fill(old, 20);
  const [stored] = await ask(
    url,
    "select string_agg(detail, ' ') as all from " +
      "(select detail from accounts union all select detail from sources) as rows",
  );
  expect(hidden.filter((secret) => String(stored?.all).includes(secret))).toEqual([]);
  const knowing = await node("nod_b", { keyRing: `${one},${two}` }, 2);
  const first = await node("nod_c", { keyRing: `${two},${one}` }, 3);
  const plans = ["free", "paid", "fixed_1m"] as const;
  const changing = Promise.all(
    Array.from({ length: 60 }, (_, at) =>
      knowing.execute("changeAccount", {
        account: `acc${at % 20}`,
        change: { plan: plans[at % 3] ?? "free" },
      }),
    ),
  );
  await Promise.all([reencrypt(first, { keyRing: `${two},${one}` }), changing]);
  await reencrypt(first, { keyRing: `${two},${one}` });
  expect(Object.fromEntries(await countKeyUse(first.read))).toEqual({ 2: 40 });
  for (let at = 0; at < 20; at++)
    expect(await knowing.read.account(`acc${at}`)).toMatchObject({ ...secrets, plan: plans[(at + 40) % 3] });
  await expect(old.read.account("acc0"), "it was not started again").rejects.toThrow(/key 2 is missing/);
});
