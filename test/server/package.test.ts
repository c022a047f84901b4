import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { toAscii } from "../../scripts/build/bundle.ts";
import { writePackage } from "../../scripts/build/writePackage.ts";
import { findCommit, formatVersion } from "../../src/settings/commit.ts";
import { parseBlocks } from "./documents.ts";
import { developmentToken, startDestination, temporaryFolder } from "./waypost.ts";

// Builds the npm package, installs its tarball in an empty folder and uses it there, without the sources.

const home = join(import.meta.dirname, "../..");

/** The folder in which the package is installed, as npm does it. */
let application: string;
/** The size of the tarball in bytes, and its files. */
let removeFolder: () => void;
let tarball: { size: number; files: { path: string }[] };

beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), "waypost-package-"));
  removeFolder = () => rmSync(folder, { recursive: true, force: true });
  await writePackage(join(folder, "package"), { withSite: false });
  const packing = spawnSync("npm", ["pack", "--json", "./package"], { cwd: folder, encoding: "utf8" });
  [tarball] = JSON.parse(packing.stdout) as [typeof tarball];
  application = join(folder, "application");
  mkdirSync(application);
  writeFileSync(join(application, "package.json"), `{ "type": "module", "private": true }`);
  const options = ["--prefer-offline", "--no-audit", "--no-fund"];
  const installing = spawnSync("npm", ["install", ...options, "../waypost-0.1.0.tgz"], {
    cwd: application,
    encoding: "utf8",
  });
  if (installing.status !== 0) throw new Error(installing.stderr);
});
afterAll(() => removeFolder());

const installed = (path: string): string => join(application, "node_modules/waypost", path);

/** An older Node.js of this machine, or null. */
const oldNode =
  (process.env.PATH ?? "")
    .split(delimiter)
    .map((folder) => join(folder, process.platform === "win32" ? "node.exe" : "node"))
    .find((path) => existsSync(path) && /^v2[0-3]\./.test(versionOf(path))) ?? null;

function versionOf(node: string): string {
  return spawnSync(node, ["--version"], { encoding: "utf8" }).stdout;
}

/** Lists every file and folder with its size and modification time. */
const listing = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .toSorted()
    .map((name) =>
      [name, lstatSync(join(folder, name)).mtimeMs, lstatSync(join(folder, name)).size].join(" "),
    );

/** Starts the installed command and waits until it serves. */
async function start(
  command: string,
  args: readonly string[],
): Promise<{ url: string; stop(): Promise<void> }> {
  const child = spawn(command, args, {
    cwd: application,
    env: { PATH: process.env.PATH, HOME: temporaryFolder(), npm_config_offline: "true" },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const kill = (signal: NodeJS.Signals): void => {
    try {
      process.kill(-(child.pid ?? 0), signal);
    } catch {
      // It has ended.
    }
  };
  onTestFinished(() => kill("SIGKILL"));
  let printed = "";
  child.stderr.on("data", (chunk: Buffer) => (printed += chunk.toString()));
  const ended = once(child, "close");
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      printed += `${line}\n`;
      const [, found] = /running at (http:[^\s"]+)/.exec(line) ?? [];
      if (found) resolve(found);
    });
    void ended.then(() => reject(new Error(printed)));
  });
  return { url, stop: async () => (kill("SIGTERM"), void (await ended)) };
}

async function expectDelivery({ url, token }: { url: string; token: string }): Promise<void> {
  const destination = await startDestination();
  const { status } = await fetch(`${url}/v2/publish/${destination.url}/order`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: "tea",
  });
  expect(status).toBe(200);
  await destination.until((arrivals) => arrivals.length > 0);
  expect(destination.arrivals[0]?.body.toString()).toBe("tea");
}

describe("the package", () => {
  test("is small and has neither sources nor tests", () => {
    const paths = tarball.files.map(({ path }) => path).toSorted();
    const code = paths.filter((path) => /^(launch|server)\//.test(path));
    expect(code).toContain("server/waypost.cjs");
    expect(paths.filter((path) => !code.includes(path))).toEqual([
      ...["CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "THIRD-PARTY-LICENSES.txt", "package.json"],
    ]);
    expect(tarball.size).toBeLessThan(2 * 2 ** 20);
  });

  test("is in ASCII, so that Node.js keeps each character in one byte", () => {
    for (const file of ["server/waypost.cjs", "server/client.cjs"])
      expect(readFileSync(installed(file)).findIndex((byte) => byte > 127)).toBe(-1);
    expect(toAscii("`é → 😀`; /[–\uffff]/")).toBe("`\\u00e9 \\u2192 \\ud83d\\ude00`; /[\\u2013\\uffff]/");
    expect(() => toAscii("String.raw`→`")).toThrow("String.raw");
  });

  test("names the commit that it was built from", () => {
    const { version } = JSON.parse(readFileSync(installed("package.json"), "utf8")) as { version: string };
    const { stdout } = spawnSync("npx", ["waypost", "--version"], {
      cwd: application,
      encoding: "utf8",
    });
    expect(stdout).toBe(`${formatVersion(version, findCommit(home, version))}\n`);
  });

  test("is small without the packaged Node.js, which a present one replaces", async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "package.json"), `{ "private": true }`);
    const options = ["--omit=optional", "--prefer-offline", "--no-audit", "--no-fund"];
    const packed = join(dirname(application), "waypost-0.1.0.tgz");
    const { status, stderr } = spawnSync("npm", ["install", ...options, packed], {
      cwd: folder,
      encoding: "utf8",
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const files = readdirSync(join(folder, "node_modules"), { recursive: true, encoding: "utf8" });
    const bytes = files.reduce((sum, name) => sum + lstatSync(join(folder, "node_modules", name)).size, 0);
    expect(bytes).toBeLessThan(8 * 2 ** 20);
    const main = join(folder, "node_modules/waypost/launch/waypost.js");
    const server = await start(process.execPath, [main, "dev", "--port", "0"]);
    await expectDelivery({ url: server.url, token: developmentToken });
    await server.stop();
  });

  test("depends on nothing but the packaged Node.js, and can be published", () => {
    const facts = JSON.parse(readFileSync(installed("package.json"), "utf8")) as Record<string, unknown>;
    expect(
      Object.keys(facts["optionalDependencies"] as object).every((name) => name.startsWith("node-")),
    ).toBe(true);
    expect(facts).toMatchObject({ name: "waypost", license: "Apache-2.0", engines: { node: ">=20" } });
    for (const name of ["author", "repository", "homepage", "bugs"]) expect(facts).toHaveProperty(name);
    for (const name of ["private", "dependencies", "devDependencies", "scripts"])
      expect(facts).not.toHaveProperty(name);
    const packages = readdirSync(join(application, "node_modules")).filter((name) => !name.startsWith("."));
    expect(packages.filter((name) => name !== "waypost" && !name.startsWith("node-"))).toEqual([]);
  });

  test("names the license of each package that it contains", () => {
    const text = readFileSync(installed("THIRD-PARTY-LICENSES.txt"), "utf8");
    for (const name of ["fastify", "pg", "pino", "undici", "zod", "croner", "commander", "react"])
      expect(text).toMatch(new RegExp(`^${name} [\\d.]+ \\(.+\\)$`, "m"));
  });

  test("is not written to by the commands", async () => {
    const before = listing(join(application, "node_modules"));
    const server = await start("npx", ["waypost", "dev", "--port", "0"]);
    await expectDelivery({ url: server.url, token: developmentToken });
    const page = await (await fetch(`${server.url}/console/`)).text();
    // The package has each file in one form, and the server makes the others.
    const [, script = ""] = /src="\.\/(assets\/[^"]+\.js)"/.exec(page) ?? [];
    const built = readFileSync(join(home, "console/dist", script), "utf8");
    for (const encoding of ["br", "gzip", "identity"]) {
      const response = await fetch(`${server.url}/console/${script}`, {
        headers: { "accept-encoding": encoding },
      });
      const sent = response.headers.get("content-encoding") ?? "identity";
      expect({ sent, text: await response.text() }).toEqual({ sent: encoding, text: built });
    }
    expect(page).toContain("<script");
    const deadLetters = spawnSync("npx", ["waypost", "dlq", "--json"], {
      cwd: application,
      env: { PATH: process.env.PATH, WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken },
      encoding: "utf8",
    });
    expect(deadLetters).toMatchObject({ status: 0, stdout: '{"messages":[]}\n', stderr: "" });
    await server.stop();
    expect(listing(join(application, "node_modules"))).toEqual(before);
  });

  test.skipIf(oldNode === null)("works on an older Node.js", { tags: "long" }, async () => {
    const server = await start(oldNode ?? "", [installed("launch/waypost.js"), "dev", "--port", "0"]);
    await expectDelivery({ url: server.url, token: developmentToken });
    await server.stop();
  });

  test.skipIf(oldNode === null)("says in one sentence that no Node.js can run the server", () => {
    // As on a platform for which npm has no Node.js.
    const alone = join(temporaryFolder(), "waypost");
    cpSync(installed("."), alone, { recursive: true });
    const { status, stderr } = spawnSync(oldNode ?? "", [join(alone, "launch/waypost.js"), "dev"], {
      encoding: "utf8",
    });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringMatching(/^waypost: Node\.js 24 or later is needed, this is v\d.*\nInstall Node/),
    });
  });
});

/** Runs a module in the application, whose console output is JSON. */
function evaluate(code: string, node = process.execPath): unknown {
  const { stdout, stderr } = spawnSync(node, ["--input-type=module", "--eval", code], {
    cwd: application,
    encoding: "utf8",
  });
  expect(stderr).toBe("");
  return JSON.parse(stdout) as unknown;
}

describe("startServer", () => {
  test("gives what a client needs, keeps a folder, and ends the process", () => {
    const data = join(temporaryFolder(), "data");
    const result = evaluate(`
      import { startServer } from "waypost";
      const results = [];
      for (let turn = 0; turn < 2; turn++) {
        const { url, token, signingKeys, stop } = await startServer({ data: ${JSON.stringify(data)} });
        const headers = { authorization: "Bearer " + token };
        const body = JSON.stringify({ queueName: "turn-" + turn, parallelism: 1 });
        await fetch(url + "/v2/queues", { method: "POST", headers, body });
        const queues = await (await fetch(url + "/v2/queues", { headers })).json();
        results.push({ signingKeys, queues: queues.map(({ name }) => name) });
        await stop();
        await stop();
      }
      console.log(JSON.stringify(results));`);
    const signingKeys = {
      current: "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r",
      next: "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs",
    };
    expect(result).toEqual([
      { signingKeys, queues: ["turn-0"] },
      { signingKeys, queues: expect.arrayContaining(["turn-0", "turn-1"]) },
    ]);
  });

  test("rejects with the reason and what to do", { tags: "long" }, async () => {
    const secret = join(temporaryFolder(), "data");
    const server = await start(process.execPath, [
      ...[installed("launch/waypost.js"), "start", "--port", "0", "--data", secret],
    ]);
    const { port } = new URL(server.url);
    const attempt = (options: string): string => `
      try { await startServer(${options}); } catch ({ message }) { errors.push(message); }`;
    const attempts = [`{ port: ${port} }`, `{ port: 1.5 }`, `{ data: "/dev/null" }`];
    const code = (calls: string): string =>
      `import { startServer } from "waypost"; const errors = [];
       ${calls} console.log(JSON.stringify(errors));`;
    expect(evaluate(code(attempts.map(attempt).join("")))).toEqual([
      expect.stringContaining(`port ${port} on 127.0.0.1 is already in use; choose another`),
      "port: 1.5 is not a whole number from 0 to 65535",
      expect.stringContaining("it is a file, not a folder"),
    ]);
    await server.stop();
    expect(evaluate(code(attempt(`{ data: ${JSON.stringify(secret)} }`)))).toEqual([
      expect.stringContaining("has no development account with the well-known credentials"),
    ]);
  });

  test("works in the vitest example of the guide", () => {
    const guide = readFileSync(join(home, "docs/guides/testing-applications.md"), "utf8");
    const example = parseBlocks(guide).find(({ kind }) => kind === "file");
    writeFileSync(join(application, "delivery.test.ts"), example?.commands ?? "");
    for (const name of ["vitest", "@types/node"]) {
      mkdirSync(dirname(join(application, "node_modules", name)), { recursive: true });
      symlinkSync(join(home, "node_modules", name), join(application, "node_modules", name));
      onTestFinished(() => rmSync(join(application, "node_modules", name)));
    }
    const bin = (name: string): string => join(home, "node_modules/.bin", name);
    const types = ["--noEmit", "--strict", "--module", "nodenext", "--skipLibCheck", "--types", "node"];
    const checked = spawnSync(bin("tsc"), [...types, "delivery.test.ts"], {
      cwd: application,
      encoding: "utf8",
    });
    expect(checked.stdout).toBe("");
    const env = { PATH: process.env.PATH, HOME: temporaryFolder() };
    // A busy machine takes longer than vitest allows by itself.
    const limits = ["--testTimeout=300000", "--hookTimeout=300000"];
    const run = spawnSync(bin("vitest"), ["run", "--root", ".", ...limits], {
      cwd: application,
      env,
      encoding: "utf8",
    });
    expect(run.stdout + run.stderr).toContain("1 passed");
  });
});

describe("waypost health", () => {
  const health = (args: readonly string[], node = process.execPath) => {
    const { status, stdout, stderr } = spawnSync(node, [installed("launch/waypost.js"), "health", ...args], {
      encoding: "utf8",
      env: { PATH: process.env.PATH, WAYPOST_PORT: "1" },
    });
    return { status, stdout, stderr };
  };

  test("reports a server that can take requests, on every Node.js", async () => {
    const server = await start(process.execPath, [installed("launch/waypost.js"), "dev", "--port", "0"]);
    const ready = { status: 0, stdout: "ready\n", stderr: "" };
    expect(health(["--url", server.url])).toEqual(ready);
    expect(health(["--port", new URL(server.url).port, "--host", "0.0.0.0"], oldNode ?? undefined)).toEqual(
      ready,
    );
  });

  test("finds the address in the configuration file", () => {
    const file = join(temporaryFolder(), "waypost.json");
    writeFileSync(file, `{ "port": 2 }`);
    const args = [installed("launch/waypost.js"), "health"];
    const { stderr } = spawnSync(process.execPath, args, { encoding: "utf8", env: { WAYPOST_CONFIG: file } });
    expect(stderr).toContain("connect ECONNREFUSED 127.0.0.1:2");
  });

  test("says why a server cannot, or what is wrong with the command", () => {
    const address = "http://127.0.0.1:1/v2/health/ready";
    expect(health([])).toEqual({
      status: 1,
      stdout: "",
      stderr: `waypost: not ready: ${address}: connect ECONNREFUSED 127.0.0.1:1\n`,
    });
    expect(health(["--url", "localhost"])).toEqual({
      status: 2,
      stdout: "",
      stderr: 'waypost: --url: "localhost" is not a URL; use one such as http://127.0.0.1:8080\n',
    });
    expect(health(["--prot", "1"])).toMatchObject({ status: 2, stderr: expect.stringContaining("--prot") });
  });

  test.runIf(process.platform === "linux")("takes at most 60 MB and does not load the server", () => {
    const alone = join(temporaryFolder(), "waypost");
    cpSync(installed("."), alone, { recursive: true });
    rmSync(join(alone, "server/waypost.cjs"));
    const measure = join(temporaryFolder(), "measure.cjs");
    // The peak of this process alone. `resourceUsage` would include the process that started it.
    const read = `require("node:fs").readFileSync("/proc/self/status", "utf8")`;
    writeFileSync(
      measure,
      `process.on("exit", () => process.stderr.write("|" + /VmHWM:\\s*(\\d+)/.exec(${read})[1]));`,
    );
    const args = ["--require", measure, join(alone, "launch/waypost.js"), "health"];
    const { status, stderr } = spawnSync(process.execPath, args, {
      encoding: "utf8",
      env: { PATH: process.env.PATH, WAYPOST_PORT: "1" },
    });
    expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringMatching(/not ready.*\|\d+$/s) });
    expect(Number(stderr.split("|")[1]) * 1024).toBeLessThan(60_000_000);
  });
});

test("a build replaces an earlier build, and no other folder", async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "mine"), "");
  await expect(writePackage(folder, { withSite: false })).rejects.toThrow("exists and is not a build");
  expect(readdirSync(folder)).toEqual(["mine"]);
});
