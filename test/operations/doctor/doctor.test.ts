import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { judgeDescriptors, judgeNode, judgeWriteError } from "../../../src/operations/doctor/machine.ts";
import { judgeSettings } from "../../../src/operations/doctor/postgres.ts";
import { describe, expect, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import {
  developmentToken,
  readCredentials,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../../server/waypost.ts";

type Finding = { check: string; verdict: string; text: string; fix?: string };
type Report = { verdict: string; findings: Finding[] };

/** Runs the command with JSON, and returns its findings by their checks. */
async function doctor(args: readonly string[], environment: NodeJS.ProcessEnv = {}) {
  const { code, out, err } = await runWaypost(["doctor", ...args, "--json"], environment).ended;
  expect(err).toBe("");
  const { verdict, findings } = JSON.parse(out) as Report;
  return { code, verdict, checks: new Map(findings.map((finding) => [finding.check, finding])) };
}

/** Starts a server with a data folder, and publishes a delayed message with a recognizable body. */
async function startWithData() {
  const data = join(temporaryFolder(), "data");
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  const headers = { authorization: `Bearer ${developmentToken}`, "svc-delay": "1h" };
  const url = `${server.url}/v2/publish/https://secret-host.example/x`;
  const { status } = await fetch(url, { method: "POST", headers, body: "a secret payload" });
  expect(status).toBe(200);
  return { data, server };
}

const listHashes = (folder: string) =>
  readdirSync(folder)
    .filter((name) => !name.endsWith("-shm") && !name.endsWith(".sock"))
    .map((name) => [
      name,
      createHash("sha256")
        .update(readFileSync(join(folder, name)))
        .digest("hex"),
    ]);

describe("waypost doctor", () => {
  test("checks a store while its server runs, and changes nothing", async () => {
    const { data, server } = await startWithData();
    const before = listHashes(data);
    const { code, verdict, checks } = await doctor(["--data", data, "--public-url", server.url]);
    expect(listHashes(data)).toEqual(before);
    expect([...checks.keys()]).toEqual([
      ...["node", "descriptors", "folder", "disk", "sync", "clock", "dns", "schema", "times", "moved"],
      ...["keys", "credentials", "integrity"],
      ...["due", "waiters", "quarantine", "conditions", "server", "proxy"],
    ]);
    expect({ code, verdict }).toMatchObject(verdict === "problem" ? { code: 1 } : { code: 0 });
    const sound = [
      "schema",
      "keys",
      "credentials",
      "integrity",
      "due",
      "waiters",
      "quarantine",
      "conditions",
      "server",
    ];
    for (const name of [...sound, "proxy"]) expect(checks.get(name), name).toMatchObject({ verdict: "ok" });
    expect(checks.get("server")?.text).toBe(`the server at ${server.url} is ready`);
    chmodSync(data, 0o755);
    const { out } = await runWaypost(["doctor", "--data", data]).ended;
    expect(out).toMatch(/^ok +folder +other users of this machine can neither change .* nor read its store/m);
    expect(out).toMatch(/^ok {7}node +Node\.js .*\n(.*\n)+problems: \d+, warnings: \d+\n$/);
  });

  test("tells which conditions the accounts have, and names only their kinds", async () => {
    const { data, server } = await startWithData();
    const headers = { authorization: `Bearer ${developmentToken}` };
    for (const path of [
      "/v2/queues/secret-queue/pause",
      "/v2/enqueue/secret-queue/https://secret-host.example/x",
    ])
      expect((await fetch(`${server.url}${path}`, { method: "POST", headers })).status).toBe(200);
    const source = await fetch(`${server.url}/v2/sources`, {
      ...{ method: "POST", headers },
      body: JSON.stringify({
        destination: "https://secret-host.example/x",
        verification: { scheme: "github", secret: "s3cret-s3cret" },
      }),
    });
    const { url } = (await source.json()) as { url: string };
    expect((await fetch(url, { method: "POST", body: "{}" })).status).toBe(401);
    const { checks } = await doctor(["--data", data]);
    expect(checks.get("conditions")).toEqual({
      check: "conditions",
      verdict: "warning",
      text: "the console shows conditions of accounts: 1 queue.paused, 1 source.rejecting",
      fix: "waypost overview, which names what they concern, with the token of the account",
    });
  });

  test("names what is wrong with a stopped store, and exits with 1", async () => {
    const { data, server } = await startWithData();
    server.kill("SIGTERM");
    await server.ended;
    const store = new DatabaseSync(join(data, "waypost.db"));
    store.exec("update messages set due_at = 1000");
    const run = { run: "run_1", runId: "wfr_1" };
    store
      .prepare("insert into waiters (account, id, kind, event, due_at, detail) values (?, ?, ?, ?, ?, ?)")
      .run("defaultUser", "run_1/3", "event", "e", null, JSON.stringify(run));
    store.close();
    chmodSync(join(data, "keys"), 0o644);
    const first = await doctor(["--data", data]);
    expect(first.code).toBe(1);
    expect(first.checks.get("folder")).toMatchObject({ verdict: "warning", fix: /^chmod go-rwx .*keys$/ });
    expect(first.checks.get("due")?.text).toMatch(/^a message is due since \d+ h; no server was found/);
    expect(first.checks.get("waiters")).toMatchObject({
      verdict: "problem",
      text: "1 of 1 waiting steps belong to runs that have ended, such as run_1/3",
    });
    expect(first.checks.get("server")).toMatchObject({ verdict: "skipped" });

    writeFileSync(join(data, "keys"), "1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n");
    expect((await doctor(["--data", data])).checks.get("keys")).toMatchObject({ verdict: "problem" });
    rmSync(join(data, "keys"));
    expect((await doctor(["--data", data])).checks.get("keys")).toMatchObject({
      verdict: "problem",
      fix: "put the keys file back from its copy, or set WAYPOST_KEYS_FILE",
    });

    const damaged = new DatabaseSync(join(data, "waypost.db"));
    damaged.exec("update stored_messages set body = cast('altered' as blob)");
    damaged.close();
    const second = await doctor(["--data", data]);
    expect(second.checks.get("integrity")?.text).toMatch(/^1 of \d+ rows are damaged: /);

    const other = new DatabaseSync(join(data, "waypost.db"));
    other.exec("update store_schema set hash = 'other'");
    other.close();
    const third = await doctor(["--data", data]);
    expect(third.checks.get("schema")?.text).toContain("has tables of another version of Waypost");
    expect(third.checks.has("due")).toBe(false);
  });

  test("says what cannot be checked", async () => {
    const folder = temporaryFolder();
    const missing = await doctor(["--data", join(folder, "nothing")]);
    expect(missing.checks.get("store")).toMatchObject({ verdict: "warning" });
    expect(readdirSync(folder)).toEqual([]);
    mkdirSync(join(folder, "data"));
    writeFileSync(join(folder, "data", "waypost.db"), "not a database, and long enough to be read as one");
    const foreign = await doctor(["--data", join(folder, "data")]);
    expect(foreign).toMatchObject({ code: 1 });
    expect(foreign.checks.get("store")).toMatchObject({ verdict: "problem", text: /waypost\.db/ });
    const unusable = await runWaypost(["doctor", "--port", "x"]).ended;
    const err = "waypost: --port: must be a whole number from 0 to 65535\n";
    expect(unusable).toMatchObject({ code: 2, err });
  });

  test("writes a bundle without payloads, tokens, keys and hosts", async () => {
    const { data } = await startWithData();
    const file = join(temporaryFolder(), "bundle.json");
    const environment = {
      WAYPOST_OPERATOR_PASSWORD: "a secret of the operator",
      WAYPOST_EGRESS_ALLOW: "secret-host.internal,10.11.12.13",
    };
    const { checks } = await doctor(["--data", data, "--bundle", file], environment);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const text = readFileSync(file, "utf8");
    const bundle = JSON.parse(text) as {
      settings: unknown[];
      rows: Record<string, number>;
      findings: Finding[];
    };
    expect(bundle.settings).toContainEqual({
      ...{ name: "egressAllow", value: "(2 entries)", from: "WAYPOST_EGRESS_ALLOW" },
    });
    expect(bundle.rows).toMatchObject({ accounts: 4, messages: 1, storedMessages: 1 });
    expect(bundle.findings).toHaveLength(checks.size);
    const keys = readFileSync(join(data, "keys"), "utf8").match(/1:(\S+)/)?.[1] ?? "no key";
    const secrets = [
      "a secret",
      "secret-host",
      "10.11.12.13",
      developmentToken,
      "defaultPassword",
      "sig_",
      keys,
    ];
    for (const secret of secrets) expect(text).not.toContain(secret);
    const again = await runWaypost(["doctor", "--data", data, "--bundle", file]).ended;
    expect(again).toMatchObject({ code: 2, err: `waypost: ${file}: already exists; choose another name\n` });
  });
});

test("waypost doctor checks a PostgreSQL database", async () => {
  const url = await freshDatabase();
  const store = ["--database-url", url];
  expect((await doctor(store)).checks.get("store")).toMatchObject({
    text: expect.stringContaining("the database has no store yet"),
    fix: "start the server once, or name another database",
  });
  await startWaypost(["start", "--port", "0", "--data", temporaryFolder(), ...store]);
  await readCredentials(...store);
  const { checks } = await doctor(store);
  expect([...checks.keys()]).toEqual([
    ...[
      "node",
      "descriptors",
      "dns",
      "schema",
      "postgres",
      "connections",
      "clock",
      "moved",
      "keys",
      "credentials",
    ],
    ...["integrity", "due", "waiters", "quarantine", "conditions", "server", "ports", "proxy"],
  ]);
  for (const name of ["schema", "connections", "clock", "integrity", "due"])
    expect(checks.get(name), name).toMatchObject({ verdict: "ok" });
  expect(checks.get("keys")).toMatchObject({ verdict: "warning", text: "secrets are stored unencrypted" });
  // The test server runs without fsync.
  expect(checks.get("postgres")?.text).toMatch(/^PostgreSQL 18/);
  const nowhere = await doctor(["--database-url", "postgres://127.0.0.1:1/x"]);
  expect(nowhere).toMatchObject({ code: 1 });
  expect(nowhere.checks.get("store")).toMatchObject({ verdict: "problem", fix: /WAYPOST_DATABASE_URL/ });
});

describe("waypost doctor egress", () => {
  test("connects to an allowed destination, and sends nothing", async () => {
    const { url, arrivals } = await startDestination();
    const found = await doctor(["egress", url, "--egress-allow", "127.0.0.0/8"]);
    expect(found).toMatchObject({ code: 0, verdict: "ok" });
    expect(found.checks.get("connection")?.text).toMatch(/^connected to 127\.0\.0\.1 in /);
    expect(arrivals).toEqual([]);
    const secure = await doctor(["egress", url.replace("http:", "https:"), "--egress-allow", "127.0.0.0/8"]);
    expect(secure.checks.get("connection")?.text).toContain("does not speak TLS on this port");
  });

  test.each([
    ["http://127.0.0.1:1/", "WAYPOST_EGRESS_ALLOW=127.0.0.1"],
    ["http://[::ffff:10.0.0.1]/", "WAYPOST_EGRESS_ALLOW=10.0.0.1"],
    [
      "http://169.254.169.254/",
      "use another address: link-local and metadata addresses should never be allowed",
    ],
  ])("refuses %s as a delivery would, and says what allows it", async (url, fix) => {
    const { code, checks } = await doctor(["egress", url, "--data", temporaryFolder()]);
    expect(code).toBe(1);
    expect([...checks.keys()]).toEqual(["settings", "addresses"]);
    expect(checks.get("addresses")).toMatchObject({ verdict: "problem", fix });
  });

  test("uses the settings of the running server, or says that they are those of the command", async () => {
    const { url } = await startDestination();
    const data = join(temporaryFolder(), "data");
    const alone = await doctor(["egress", url, "--data", data]);
    expect(alone).toMatchObject({ code: 1 });
    expect(alone.checks.get("settings")).toMatchObject({
      verdict: "skipped",
      text: `no server runs on ${data}; these are the settings of the command`,
    });

    const networks = ["--egress-allow", "127.0.0.0/8"];
    const server = await startWaypost(["start", "--port", "0", "--data", data, ...networks]);
    const asServer = await doctor(["egress", url, "--data", data]);
    expect(asServer).toMatchObject({ code: 0, verdict: "ok" });
    expect(asServer.checks.get("settings")).toMatchObject({
      verdict: "ok",
      text: `these are the settings of the server that runs on ${data}`,
    });
    const tried = await doctor(["egress", url, "--data", data, "--egress-allow", "10.0.0.0/8"]);
    expect(tried.code).toBe(1);
    expect(tried.checks.get("settings")?.text).toBe(
      `with --egress-allow, these are the settings of the command, not of the server that runs on ${data}`,
    );
    server.kill("SIGTERM");
    await server.ended;
    expect((await doctor(["egress", url, "--data", data])).code).toBe(1);
  });

  test.each(["nothing", "ftp://example.com/"])(
    "refuses %s, because it is not a URL of a destination",
    async (url) => {
      const { code, checks } = await doctor(["egress", url]);
      expect({ code, text: checks.get("url")?.text }).toEqual({
        code: 1,
        text: `"${url}" is not an http:// or https:// URL`,
      });
    },
  );
});

describe("the judgement of", () => {
  test("a Node.js that is older than the tested one, or is not supported for long", () => {
    expect(judgeNode("24.21.0", "24.21.0").verdict).toBe("ok");
    expect(judgeNode("24.21.1", "24.21.0").verdict).toBe("ok");
    expect(judgeNode("26.1.0", "24.21.0").verdict).toBe("ok");
    expect(judgeNode("24.9.9", "24.21.0")).toMatchObject({
      verdict: "warning",
      text: /older than 24\.21\.0/,
    });
    expect(judgeNode("25.1.0", "24.21.0").verdict).toBe("warning");
  });

  test("a limit of file descriptors", () => {
    expect(judgeDescriptors(null, 1024).verdict).toBe("ok");
    expect(judgeDescriptors(2048, 1024).verdict).toBe("ok");
    expect(judgeDescriptors(2047, 1024)).toMatchObject({ verdict: "warning", fix: /^ulimit -n 2048/ });
  });

  test.each([
    ["ENOSPC", /^free some space/],
    ["EDQUOT", /^free some space/],
    ["EROFS", /^mount the disk/],
    ["EACCES", /^run the command as the user of the server/],
    ["EPERM", /^run the command as the user of the server/],
    ["EIO", /^check the disk/],
  ])("a folder that cannot be written because of %s", (code, fix) => {
    const error = Object.assign(new Error(`${code}: write`), { code });
    expect(judgeWriteError("/data", error)).toMatchObject({
      verdict: "problem",
      text: /^\/data .*: write/,
      fix,
    });
  });

  test("the settings of PostgreSQL", () => {
    const good = {
      ...{ server_version: "18.1", server_version_num: "180001", fsync: "on", full_page_writes: "on" },
      ...{ synchronous_commit: "on", autovacuum: "on", transaction_read_only: "off" },
    };
    expect(judgeSettings(good).verdict).toBe("ok");
    for (const name of ["fsync", "full_page_writes", "synchronous_commit"])
      expect(judgeSettings({ ...good, [name]: "off" }), name).toMatchObject({
        verdict: "problem",
        fix: new RegExp(`alter system set ${name} = on`),
      });
    expect(judgeSettings({ ...good, transaction_read_only: "on" }).verdict).toBe("problem");
    expect(judgeSettings({ ...good, autovacuum: "off" }).verdict).toBe("warning");
    expect(judgeSettings({ ...good, server_version_num: "130010" }).verdict).toBe("problem");
  });
});
