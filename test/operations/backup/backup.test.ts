import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { startDeliveryChecker } from "../../server/deliveryChecker.ts";
import {
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../../server/waypost.ts";

const authorization = `Bearer ${developmentToken}`;

async function send(url: string, method: "GET" | "POST" = "POST", headers: Record<string, string> = {}) {
  const body = method === "POST" ? { body: "x" } : {};
  const answer = await request(url, { method, headers: { authorization, ...headers }, ...body });
  return (await answer.body.json()) as Record<string, unknown>;
}

describe("a backup", () => {
  test("taken while the server works is complete, and is held until it is released", async () => {
    const folder = temporaryFolder();
    const data = join(folder, "data");
    const file = join(folder, "backup.db");
    const checker = await startDeliveryChecker();
    const server = await startWaypost(["dev", "--port", "0", "--data", data]);
    const publish = (name: string, headers: Record<string, string> = {}) =>
      send(`${server.url}/v2/publish/${checker.url}/${name}`, "POST", headers);
    const delayed = Array.from({ length: 30 }, (_, index) => `delayed-${index}`);
    await Promise.all(delayed.map((name) => publish(name, { "svc-delay": "1h" })));
    let going = true;
    const load = (async () => {
      while (going) await publish("more");
    })();
    while (checker.calls.length < 50) await pause(5);
    const backup = await runWaypost(["backup", file, "--data", data, "--with-keys"]).ended;
    expect(backup).toMatchObject({ code: 0, err: "" });
    expect(backup.out).toMatch(
      /^backed up [\d.]+ MB to .*backup\.db in [\d.]+ s\nthe keys are in .*\.keys; /,
    );
    const during = checker.calls.length;
    while (checker.calls.length < during + 50) await pause(5);
    going = false;
    await load;
    server.kill("SIGKILL");
    await server.ended;
    expect(readdirSync(folder).toSorted()).toEqual(["backup.db", "backup.db.keys", "data"]);
    for (const name of [file, `${file}.keys`]) expect(statSync(name).mode & 0o777).toBe(0o600);

    const restored = join(folder, "restored");
    const restore = await runWaypost(["restore", file, "--data", restored]).ended;
    expect(restore).toMatchObject({ code: 0, err: "" });
    const copied = new DatabaseSync(join(restored, "waypost.db"));
    copied.exec("update messages set due_at = 1 where state = 'pending'");
    copied.close();

    const before = checker.calls.length;
    const held = await startWaypost(["dev", "--hold", "--port", "0", "--data", restored]);
    expect(await send(`${held.url}/v2/health`, "GET")).toMatchObject({ status: "ok", held: true });
    const { messageId } = await send(`${held.url}/v2/publish/${checker.url}/new`);
    const { waitingOn } = await send(`${held.url}/v2/messages/${messageId as string}`, "GET");
    expect(waitingOn).toEqual(expect.arrayContaining([expect.objectContaining({ reason: "server-held" })]));
    // The hold outlasts the server that began it.
    held.kill("SIGKILL");
    await held.ended;
    const again = await startWaypost(["dev", "--port", "0", "--data", restored]);
    await pause(1_500);
    expect(checker.calls.length).toBe(before);
    const unhold = async () => (await runWaypost(["unhold", "--data", restored]).ended).out;
    expect(await unhold()).toBe("deliveries are no longer held\n");
    expect(await unhold()).toBe("deliveries were not held; nothing changed\n");
    const arrived = (name: string) =>
      checker.calls.map(({ limiter }) => limiter).filter((flow) => flow.startsWith(name));
    while (arrived("delayed").length < delayed.length || arrived("new").length < 1) await pause(20);
    expect(new Set(arrived("delayed"))).toEqual(new Set(delayed));
    again.kill("SIGTERM");
    expect((await again.ended).code).toBe(0);
    expect(again.out()).toContain("running at");
  });

  test("names the keys that it does not include", async () => {
    const { data, folder } = await makeStore();
    const file = join(folder, "plain.db");
    const { code, out } = await runWaypost(["backup", file, "--data", data]).ended;
    expect({ code, out }).toEqual({ code: 0, out: expect.stringContaining(`keep a copy of ${data}/keys`) });
    expect(existsSync(`${file}.keys`)).toBe(false);
  });

  test("is refused with a reason, and leaves nothing behind", async () => {
    const { data, folder } = await makeStore();
    const taken = join(folder, "taken");
    writeFileSync(taken, "mine");
    writeFileSync(join(folder, "half.part"), "");
    const attempts: readonly [file: string, data: string, error: string][] = [
      [taken, data, "already exists; choose another name"],
      [
        join(folder, "half"),
        data,
        "half.part: already exists; if no other backup is being written, remove it",
      ],
      [join(folder, "none/file"), data, "cannot be written"],
      [join(folder, "file"), join(folder, "no-data"), "no store found; name the data folder with --data"],
    ];
    const before = readdirSync(folder);
    for (const [file, from, error] of attempts)
      expect(await runWaypost(["backup", file, "--data", from]).ended).toMatchObject({
        code: 2,
        err: expect.stringContaining(error),
      });
    expect(readdirSync(folder)).toEqual(before);
    expect(readFileSync(taken, "utf8")).toBe("mine");
    const environment = { WAYPOST_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none" };
    const postgres = await runWaypost(["backup", join(folder, "file")], environment).ended;
    expect(postgres).toMatchObject({ code: 2, err: expect.stringContaining("pg_dump") });
  });

  test("to a full disk is refused, and leaves nothing behind", async ({ skip }) => {
    const { data, folder } = await makeStore();
    const small = join(folder, "small");
    mkdirSync(small);
    const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", small]);
    if (mounted.status !== 0) return skip("only root can mount a small disk");
    onTestFinished(() => void spawnSync("umount", [small]));
    const { code, err } = await runWaypost(["backup", join(small, "file"), "--data", data]).ended;
    expect({ code, err }).toEqual({ code: 2, err: expect.stringMatching(/cannot be written .*free space/) });
    expect(readdirSync(small)).toEqual([]);
  });
});

/** Makes a store with a message, and a backup of it with its keys, without a server. */
async function makeStore(): Promise<{ folder: string; data: string; file: string }> {
  const folder = temporaryFolder();
  const data = join(folder, "data");
  const file = join(folder, "backup.db");
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  const destination = await startDestination();
  await send(`${server.url}/v2/publish/${destination.url}`, "POST", { "svc-delay": "1h" });
  server.kill("SIGTERM");
  await server.ended;
  expect((await runWaypost(["backup", file, "--data", data, "--with-keys"]).ended).err).toBe("");
  return { folder, data, file };
}

describe("a restore", () => {
  test("is refused with a reason, and changes nothing", { tags: "long" }, async () => {
    const { folder, data, file } = await makeStore();
    const variant = (name: string, change: (path: string) => void): string => {
      const path = join(folder, name);
      copyFileSync(file, path);
      copyFileSync(`${file}.keys`, `${path}.keys`);
      change(path);
      return path;
    };
    const garble = (path: string): void => {
      const content = readFileSync(path);
      for (let at = 8_192; at < content.length; at += 8_192) content.fill(7, at, at + 200);
      writeFileSync(path, content);
    };
    const newer = (path: string): void => {
      const database = new DatabaseSync(path);
      database.exec("update store_schema set hash = 'newer'; pragma wal_checkpoint(truncate)");
      database.close();
    };
    const otherKey = `1:${Buffer.alloc(32, 1).toString("base64")}\n`;
    const attempts: readonly [file: string, error: string | RegExp][] = [
      [variant("garbled", garble), /garbled: damaged \(.+\); use another backup/],
      [variant("cut", (path) => truncateSync(path, 20_000)), "damaged"],
      [variant("text", (path) => writeFileSync(path, "x".repeat(5_000))), "is not a backup of waypost"],
      [variant("empty", (path) => writeFileSync(path, "")), "is not a backup of waypost"],
      [variant("newer", newer), "has tables of another version of Waypost"],
      [variant("keyless", (path) => rmSync(`${path}.keys`)), "are encrypted with key 1, which is missing"],
      [variant("wrong", (path) => writeFileSync(`${path}.keys`, otherKey)), /key/],
      [join(folder, "missing"), 'no such file; name a file that "waypost backup" has written'],
    ];
    const target = join(folder, "target");
    for (const [from, error] of attempts) {
      const { code, err } = await runWaypost(["restore", from, "--data", target]).ended;
      expect({ from, code, err }).toEqual({ from, code: 2, err: expect.stringMatching(error) });
      expect(err).not.toContain(" at ");
      expect(existsSync(target), from).toBe(false);
    }
    const onto = await runWaypost(["restore", file, "--data", data]).ended;
    expect(onto).toMatchObject({
      code: 2,
      err: expect.stringContaining("already exists; choose an empty folder with --data"),
    });
  });

  test("is refused if a server uses the folder", async () => {
    const { folder, file } = await makeStore();
    const used = join(folder, "used");
    const server = await startWaypost(["dev", "--port", "0", "--data", used]);
    for (const name of ["waypost.db", "waypost.db-wal"]) rmSync(join(used, name), { force: true });
    const { code, err } = await runWaypost(["restore", file, "--data", used]).ended;
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringContaining("another waypost server is using it"),
    });
    server.kill("SIGKILL");
  });
});

test("a restore refuses a backup with altered rows and names them; --force takes it", async () => {
  const folder = temporaryFolder();
  const data = join(folder, "data");
  const file = join(folder, "backup.db");
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  const sent = await send(`${server.url}/v2/publish/https://a.example`, "POST", { "svc-delay": "1h" });
  await runWaypost(["backup", file, "--data", data, "--with-keys"]).ended;
  server.kill("SIGTERM");
  await server.ended;
  const database = new DatabaseSync(file);
  database.exec("update stored_messages set body = cast('y' as blob)");
  database.close();
  const restored = join(folder, "restored");
  const refused = await runWaypost(["restore", file, "--data", restored]).ended;
  expect(refused.code).toBe(2);
  expect(refused.err).toContain("1 rows differ from their checksums: stored_messages");
  expect(refused.err).toContain(String(sent["messageId"]));
  expect(existsSync(restored)).toBe(false);
  const forced = await runWaypost(["restore", file, "--data", restored, "--force"]).ended;
  expect(forced).toMatchObject({ code: 0, err: "" });
  expect(forced.out).not.toContain("checking");
});

test.each([
  {
    damage: "altered rows",
    change: "update stored_messages set body = cast('y' as blob)",
    found: /: damaged: 1 rows differ from their checksums: stored_messages \S+ msg_\w+; the backup has/,
  },
  {
    damage: "wrong counts",
    change: "update store_counts set value = value + 7",
    found: /: damaged: messages should have \d+ rows, and has 1; .*the backup has/,
  },
  {
    damage: "a row with a number that cannot be read",
    change: "update stored_messages set checksum = 9007199254740993",
    found: /: damaged: stored_messages: cannot be read: Value is too large [^;]+; the backup has/,
  },
  {
    damage: "a count that cannot be read",
    change: "update store_counts set value = 9007199254740993",
    found:
      /: store_counts: cannot be read: Value is too large [^;]+; messages should have \d+ rows, and has 1;/,
  },
  {
    damage: "a missing index",
    change: "drop index messages_host",
    found: /: damaged: the definition of messages_host is missing; the backup has/,
  },
])("a store with $damage is backed up, with code 3, and not restored", async ({ change, found }) => {
  const { folder, data } = await makeStore();
  const database = new DatabaseSync(join(data, "waypost.db"));
  database.exec(change);
  database.close();
  const file = join(folder, "damaged.db");
  const { code, out, err } = await runWaypost(["backup", file, "--data", data, "--with-keys"]).ended;
  expect({ code, out, err }).toEqual({
    code: 3,
    out: expect.stringMatching(/^backed up [^]*the keys are in /),
    err: expect.stringMatching(found),
  });
  const restored = join(folder, "restored");
  const restore = await runWaypost(["restore", file, "--data", restored]).ended;
  expect(restore).toMatchObject({ code: 2, err: expect.stringContaining("use another backup; --force") });
  expect(existsSync(restored)).toBe(false);
});

test("a restore of a large backup says what it does", async () => {
  const folder = temporaryFolder();
  const data = join(folder, "data");
  const file = join(folder, "backup.db");
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  await runWaypost(["backup", file, "--data", data, "--with-keys"]).ended;
  server.kill("SIGTERM");
  const database = new DatabaseSync(file);
  database.exec("update storage_probe set probed_at = zeroblob(101000000)");
  database.close();
  const { code, out } = await runWaypost(["restore", file, "--data", join(folder, "restored")]).ended;
  expect(code).toBe(0);
  expect(out).toMatch(/^checking the pages of 10\d MB\nchecking the rows of 10\d MB\nrestored /);
});
