import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { findServer, storeLogin } from "../../src/client/storedLogin.ts";
import { serverCertificate } from "../engine/delivery/http/authority.ts";
import { commandsFor, startCommand } from "./startCommand.ts";
import {
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../server/waypost.ts";

describe("a login", () => {
  test("is stored for this user alone, and used until logout", async () => {
    const { url } = await startWaypost(["dev", "--port", "0"]);
    const folder = temporaryFolder();
    const environment = { XDG_CONFIG_HOME: folder };
    const login = await startCommand(["login", `${url}/`], environment, `${developmentToken}\n`).ended;
    expect(login).toMatchObject({
      code: 0,
      err: "",
      out: expect.stringMatching(/as defaultUser \(publish, read, manage, receive\)/),
    });
    expect(login.out).not.toContain(developmentToken);
    const file = join(folder, "waypost/login.json");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(join(folder, "waypost")).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(folder, "waypost"))).toEqual(["login.json"]);
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ url, token: developmentToken });
    expect(await startCommand(["queues"], environment).ended).toMatchObject({ code: 0, out: "no queues\n" });
    chmodSync(file, 0o644);
    expect(await startCommand(["queues"], environment).ended).toMatchObject({
      code: 2,
      err: expect.stringContaining("chmod 600"),
    });
    chmodSync(file, 0o600);
    expect(await startCommand(["logout"], environment).ended).toMatchObject({ code: 0 });
    expect(await startCommand(["queues"], environment).ended).toMatchObject({ code: 2 });
  });

  test("with a wrong token is not stored", async () => {
    const { url } = await startWaypost(["dev", "--port", "0"]);
    const folder = temporaryFolder();
    const login = await startCommand(["login", url], { XDG_CONFIG_HOME: folder }, "wrong\n").ended;
    expect(login).toMatchObject({ code: 4, err: expect.stringContaining("the token was not accepted") });
    expect(readdirSync(folder)).toEqual([]);
  });

  test("is removed even if it is exposed, damaged or a link", async () => {
    const folder = temporaryFolder();
    const file = join(folder, "waypost/login.json");
    mkdirSync(join(folder, "waypost"));
    const logout = () => startCommand(["logout"], { XDG_CONFIG_HOME: folder }).ended;
    for (const [text, mode] of [
      ['{"url":"http://127.0.0.1:1","token":"x"}', 0o644],
      ['{"url":', 0o600],
    ] as const) {
      writeFileSync(file, text);
      chmodSync(file, mode);
      expect(await logout()).toMatchObject({ code: 0, out: `removed ${file}\n` });
      expect(readdirSync(join(folder, "waypost"))).toEqual([]);
    }
    writeFileSync(join(folder, "kept.json"), "{}");
    symlinkSync("../kept.json", file);
    expect(await logout()).toMatchObject({ code: 0 });
    expect(readdirSync(folder)).toEqual(["waypost"]);
    expect(readdirSync(join(folder, "waypost"))).toEqual([]);
    expect(await logout()).toMatchObject({ code: 0, out: "there was no login\n" });
  });

  test("replaces the target of a link, and keeps the link", () => {
    const folder = temporaryFolder();
    const file = join(folder, "waypost/login.json");
    mkdirSync(join(folder, "waypost"));
    writeFileSync(join(folder, "kept.json"), "old");
    symlinkSync("../kept.json", file);
    storeLogin(file, { url: "http://127.0.0.1:1", token: "new" });
    expect(lstatSync(file).isSymbolicLink()).toBe(true);
    expect(readFileSync(join(folder, "kept.json"), "utf8")).toContain('"new"');
    expect(statSync(join(folder, "kept.json")).mode & 0o777).toBe(0o600);
    expect(readdirSync(folder).toSorted()).toEqual(["kept.json", "waypost"]);
  });

  test("that no command could use is damaged", () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "waypost"));
    for (const login of [
      { url: "file:///etc/passwd", token: "x" },
      { url: "http://127.0.0.1:1", token: "a b" },
    ]) {
      writeFileSync(join(folder, "waypost/login.json"), JSON.stringify(login), { mode: 0o600 });
      expect(() => findServer({ XDG_CONFIG_HOME: folder })).toThrow(/is damaged; run waypost login again/);
    }
  });

  test.runIf(process.platform === "linux")(
    "that cannot be stored is an error, even below /proc",
    async () => {
      const { url } = await startWaypost(["dev", "--port", "0"]);
      const login = startCommand(["login", url], { XDG_CONFIG_HOME: "/proc/x" }, `${developmentToken}\n`);
      expect(await login.ended).toMatchObject({ code: 1, err: expect.stringContaining("cannot be written") });
    },
  );

  test("is not sent to another server", async () => {
    const { url } = await startWaypost(["dev", "--port", "0"]);
    const environment = { XDG_CONFIG_HOME: temporaryFolder() };
    await startCommand(["login", url], environment, developmentToken).ended;
    const other = await startDestination();
    expect(await startCommand(["queues"], { ...environment, WAYPOST_URL: other.url }).ended).toMatchObject({
      code: 2,
      err: expect.stringContaining(`no token is known for ${other.url}; set WAYPOST_TOKEN`),
    });
    expect(other.arrivals).toEqual([]);
  });
});

describe("a command that fails says in one sentence what to do:", () => {
  test("no server, wrong addresses, and a server that is not there", async () => {
    const testServer = { XDG_CONFIG_HOME: temporaryFolder() };
    const run = (environment: NodeJS.ProcessEnv, ...args: readonly string[]) =>
      startCommand(args, { ...testServer, ...environment }).ended;
    const token = { WAYPOST_TOKEN: developmentToken };
    expect(await run({}, "queues")).toMatchObject({
      code: 2,
      err: expect.stringContaining("waypost login <url>"),
    });
    expect(await run({ ...token, WAYPOST_URL: "localhost:8080" }, "queues")).toMatchObject({
      code: 2,
      err: expect.stringContaining("is not an address such as http://"),
    });
    expect(await run({ ...token, WAYPOST_URL: "http://127.0.0.1:1" }, "queues")).toMatchObject({
      code: 5,
      err: expect.stringMatching(
        /^waypost: http:\/\/127\.0\.0\.1:1: the server cannot be reached \(connection refused\)/,
      ),
    });
    const page = await startDestination(() => ({ status: 200, body: "<html>" }));
    expect(await run({ ...token, WAYPOST_URL: page.url }, "queues")).toMatchObject({
      code: 1,
      err: expect.stringContaining("without a response of Waypost"),
    });
    const moved = await startDestination(() => ({ status: 302, headers: { location: page.url } }));
    const before = page.arrivals.length;
    expect(await run({ ...token, WAYPOST_URL: moved.url }, "queues")).toMatchObject({ code: 1 });
    expect(page.arrivals).toHaveLength(before);
    const { url } = await startWaypost(["dev", "--port", "0"]);
    expect(await run({ ...token, WAYPOST_URL: url.replace("http:", "https:") }, "queues")).toMatchObject({
      code: 5,
      err: expect.stringContaining("use http://"),
    });
    const secure = createServer(serverCertificate).listen(0, "127.0.0.1");
    await once(secure, "listening");
    const secureUrl = `https://127.0.0.1:${(secure.address() as AddressInfo).port}`;
    const untrusted = await run({ ...token, WAYPOST_URL: secureUrl }, "queues");
    secure.close();
    expect(untrusted).toMatchObject({ code: 5, err: expect.stringContaining("NODE_EXTRA_CA_CERTS") });
    const read = commandsFor(url);
    expect(await read("messages", "get", "msg_1")).toMatchObject({ code: 3 });
    expect(await read("messages", "list", "--state", "lost")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^waypost: state: must be one of/),
    });
    expect(await read("messages", "list", "--since", "soon")).toMatchObject({ code: 2 });
    expect(await read("messages", "lost")).toMatchObject({ code: 2 });
    expect(await read("queues", "--watch", "0")).toMatchObject({ code: 2 });
    expect(await read("publish", "https://example.com/a b")).toMatchObject({ code: 2 });
    expect(await commandsFor(url, { WAYPOST_TOKEN: "wrong" })("queues")).toMatchObject({ code: 4 });
  });
});

/** The characters that must never reach a terminal. Line breaks are allowed. */
const controls = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;
const attack = "\u001b[2J\u001b]0;title\u0007\u009b31m\u202e\r\nnext\u0000";

test("nothing that a server returns controls the terminal", async () => {
  const hostile = {
    ...Object.fromEntries(
      ["messageId", "url", "state", "error", "message", "body", "label", "name", "dlqId", "cron", "host"].map(
        (name) => [name, attack],
      ),
    ),
    ...{ labels: [attack], header: { [attack]: [attack] }, waitingOn: [{ text: attack }], createdAt: 1e300 },
    ...{
      outcomes: [{ error: attack, responseStatus: attack }],
      endpoints: [{ url: attack }],
      responseBody: attack,
    },
    ...{ workflowRunId: attack, workflowState: attack, text: attack, jobId: attack, action: attack },
    ...{
      steps: [{ steps: [{ stepName: attack, errors: [{ error: attack }] }] }],
      failure: { error: attack },
    },
    ...{ failures: [{ id: attack, reason: attack }], paused: { queues: { names: [attack] } } },
  };
  const lists = [
    "messages",
    "groups",
    "hosts",
    "jobs",
    "runs",
    "logs",
    "sources",
    "worstHosts",
    "holders",
    "alerts",
    "minutes",
  ];
  const page = {
    ...hostile,
    ...Object.fromEntries(lists.map((name) => [name, [hostile]])),
    daily_requests: [{ x: `0${attack}`, y: attack }],
    ...{ daily_used: [], daily_bandwidths: [], account: { id: "1" }, unfinished: {}, held: {} },
    ...{ count: 1, done: 0, failed: 0, inFlight: 0, deadLetters: 0, used: 0, waiting: 0 },
    sample: [attack],
  };
  let status = 200;
  const server = await startDestination(({ path }) => ({
    status,
    body: JSON.stringify(
      status === 200 && /(queues|topics|schedules|flowControl)$/.test(path) ? [hostile] : page,
    ),
  }));
  const run = commandsFor(server.url);
  const commands = [
    ...[["messages"], ["messages", "get", "x"], ["messages", "why", "x"], ["dlq"], ["dlq", "get", "x"]],
    ...[
      ["dlq", "groups"],
      ["runs"],
      ["runs", "get", "x"],
      ["runs", "why", "x"],
      ["jobs"],
      ["jobs", "get", "x"],
    ],
    ...[
      ["logs"],
      ["queues"],
      ["queues", "holders", "x"],
      ["schedules", "run", "x"],
      ["groups"],
      ["schedules"],
      ["flow-control"],
      ["hosts"],
      ["sources"],
      ["alerts"],
      ["overview"],
    ],
    ...[
      ["dlq", "retry", "--all", "--dry-run"],
      ["dlq", "retry", "--all"],
      ["publish", "https://example.com"],
    ],
    ...[
      ["dlq", "retry", `1${attack.replace("\0", "")}`],
      ["jobs", "stop", "x"],
      ["stats"],
      ["messages", "--json"],
    ],
  ];
  for (let at = 0; at < commands.length; at += 4)
    await Promise.all(
      commands.slice(at, at + 4).map(async (args) => {
        const { out, err } = await run(...args);
        expect(`${out}${err}`.length, args.join(" ")).toBeGreaterThan(0);
        expect(`${out}${err}`, args.join(" ")).not.toMatch(controls);
      }),
    );
  status = 500;
  const { err } = await run("queues");
  expect(err).toContain(String.raw`\u{1b}[2J`);
  expect(err).not.toMatch(controls);
});

const hasScript = spawnSync("script", ["--version"]).status === 0;

describe.runIf(hasScript)("on a terminal", () => {
  const onTerminal = async (
    url: string,
    args: string,
    environment: NodeJS.ProcessEnv = {},
  ): Promise<string> => {
    const bin = new URL("../../bin/waypost.js", import.meta.url).pathname;
    const command = `stty cols 60; '${process.execPath}' '${bin}' ${args}`;
    const child = startScript(command, {
      ...{ WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken, TERM: "xterm-256color" },
      ...environment,
    });
    return (await child).replaceAll("\r", "");
  };

  test("tables fit, and colours are used unless NO_COLOR is set", async () => {
    const { url } = await startWaypost(["dev", "--port", "0"]);
    const long = `https://example.com/${"long/".repeat(30)}`;
    await commandsFor(url)("publish", long, "--delay", "1h");
    const shown = await onTerminal(url, "messages");
    expect(shown).toContain("\u001b[");
    const plain = await onTerminal(url, "messages", { NO_COLOR: "1" });
    expect(plain).not.toContain("\u001b[");
    expect(plain).toContain("…");
    for (const line of plain.split("\n")) expect(line.length).toBeLessThanOrEqual(60);
  });

  test("a bulk action asks, and a progress bar is shown", async () => {
    const { url } = await startWaypost(["dev", "--port", "0"]);
    const run = commandsFor(url);
    for (let n = 0; n < 2; n++) await run("publish", "https://example.com", "--delay", "1h");
    expect(await onTerminal(url, "messages cancel --all", { INPUT: "n" })).toContain("nothing was changed");
    expect((await run("messages", "--json")).out).toContain('"total":2');
    const done = await onTerminal(url, "messages cancel --all", { INPUT: "y" });
    expect(done).toContain("cancel 2 messages");
    expect(done).toContain("[##############################]  2/2");
    expect((await run("messages", "--json")).out).toContain('"total":0');
  });

  test("strange numbers of a job are no reason to fail", async () => {
    const job = { jobId: "job_1", action: "dlq.retry", state: "done", total: -5, done: 1e9, failed: 0 };
    const server = await startDestination(() => ({ status: 200, body: JSON.stringify(job) }));
    const shown = await onTerminal(server.url, "jobs wait job_1");
    expect(shown).toContain("1000000000/-5");
    expect(shown).not.toContain("RangeError");
  });
});

/** Runs a shell command on its own terminal, and types the text in `INPUT`. */
async function startScript(command: string, environment: NodeJS.ProcessEnv): Promise<string> {
  const { INPUT, ...rest } = environment;
  const env = { PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"], ...rest };
  const child = spawn("script", ["-qfec", command, "/dev/null"], { env, stdio: ["pipe", "pipe", "pipe"] });
  let out = "";
  child.stdout.on("data", (chunk: Buffer) => {
    out += chunk.toString();
    if (INPUT !== undefined && out.includes("[y/N]") && !out.includes(`[y/N] ${INPUT}`))
      child.stdin.write(`${INPUT}\n`);
  });
  await new Promise((resolve) => child.on("close", resolve));
  return out;
}

describe("the help and the completion", () => {
  test("have every command", { tags: "long" }, async () => {
    const { code, out } = await runWaypost(["--help"]).ended;
    expect(code).toBe(0);
    for (const name of [
      "start",
      "token",
      "login",
      "messages",
      "dlq",
      "runs",
      "jobs",
      "logs",
      "flow-control",
      "publish",
    ])
      expect(out).toMatch(new RegExp(`^  ${name}[ |]`, "m"));
    const script = (await runWaypost(["completion", "bash"]).ended).out;
    const complete = (...words: readonly string[]): string[] => {
      const typed = words.map((word) => `'${word}'`).join(" ");
      const place = `COMP_WORDS=(waypost ${typed}); COMP_CWORD=${words.length}`;
      const line = `${script}\n${place}; _waypost; echo "\${COMPREPLY[@]}"`;
      const { stdout, stderr } = spawnSync("bash", ["-c", line], { encoding: "utf8" });
      expect(stderr).toBe("");
      return stdout.trim().split(/\s+/);
    };
    expect(complete("mess")).toEqual(["messages"]);
    expect(complete("dlq", "re")).toEqual(["retry", "replay"]);
    expect(complete("dlq", "retry", "--lab")).toEqual(["--label"]);
    expect(complete("dlq", "retry", "--label", "x", "--y")).toEqual(["--yes"]);
    expect((await runWaypost(["completion", "zsh"]).ended).out).toMatch(/^#compdef waypost/);
    expect((await runWaypost(["completion", "fish"]).ended).out).toContain("-a retry -d");
    expect(await runWaypost(["completion", "tcsh"]).ended).toMatchObject({ code: 2 });
  });
});

test("a command ends when the program that reads its output has ended", { tags: "long" }, async () => {
  const { url } = await startWaypost(["dev", "--port", "0"]);
  const bin = new URL("../../bin/waypost.js", import.meta.url).pathname;
  const { status } = spawnSync(
    "bash",
    ["-c", `'${process.execPath}' '${bin}' queues --watch 0.2 --json | head -1`],
    {
      env: { PATH: process.env.PATH, WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken },
      timeout: 300_000,
    },
  );
  expect(status).toBe(0);
});
