import { spawn, spawnSync } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, onTestFinished, test } from "vitest";
import { temporaryFolder } from "./waypost.ts";

const home = join(import.meta.dirname, "../..");
const { dependencies, scripts } = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as Record<
  string,
  Record<string, string>
>;

/** Makes an installation as by `npm ci --omit=dev`, which differs from its package-lock.json. */
function production(): { folder: string; npm: () => boolean; env: NodeJS.ProcessEnv } {
  const folder = join(temporaryFolder(), "waypost");
  for (const name of ["bin", "launch", "scripts", "src", "package.json", "package-lock.json"])
    cpSync(join(home, name), join(folder, name), { recursive: true });
  for (const name of Object.keys(dependencies ?? {})) {
    mkdirSync(dirname(join(folder, "node_modules", name)), { recursive: true });
    symlinkSync(join(home, "node_modules", name), join(folder, "node_modules", name));
  }
  // An npm that leaves a trace and fails, as without a network.
  const commands = temporaryFolder();
  writeFileSync(join(commands, "npm"), `#!/bin/sh\ntouch ${commands}/called\nexit 1\n`);
  chmodSync(join(commands, "npm"), 0o755);
  return {
    folder,
    npm: () => existsSync(join(commands, "called")),
    env: { PATH: `${commands}:${process.env.PATH}` },
  };
}

/** Lists every file and folder with its size and modification time. */
const listing = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .toSorted()
    .map((name) =>
      [name, lstatSync(join(folder, name)).mtimeMs, lstatSync(join(folder, name)).size].join(" "),
    );

type Started = { child: ChildProcess; ready: Promise<string>; ended: Promise<string> };

/**
 * Starts a process in its own process group. `ended` resolves with the output when the process and everything
 * that it started have ended.
 */
function start(
  command: string,
  args: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv },
): Started {
  const child = spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"], detached: true });
  onTestFinished(() => {
    try {
      process.kill(-(child.pid ?? 0), "SIGKILL");
    } catch {
      // The process has ended, as it should.
    }
  });
  let printed = "";
  child.stderr.on("data", (chunk: Buffer) => (printed += chunk.toString()));
  const ended = once(child, "close").then(() => printed);
  const ready = new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      printed += `${line}\n`;
      const [, url] = /running at (http:[^\s"]+)/.exec(line) ?? [];
      if (url) resolve(url);
    });
    void ended.then(() => reject(new Error(printed)));
  });
  ready.catch(() => undefined);
  return { child, ready, ended };
}

describe("an installation for production", () => {
  test("is used unchanged by every command, and nothing is written to it", { tags: "long" }, async () => {
    const { folder, npm, env } = production();
    // Even if it was made from a checkout.
    mkdirSync(join(folder, ".git"));
    const before = listing(folder);
    const data = join(temporaryFolder(), "data");
    const bin = join(folder, "bin/waypost.js");
    const server = start(process.execPath, [bin, "start", "--port", "0", "--data", data], {
      cwd: data.replace(/data$/, ""),
      env,
    });
    await server.ready;
    for (const args of [["credentials"], ["account", "list"], ["token", "list", "owner"], ["keys", "show"]]) {
      const { status, stderr } = spawnSync(process.execPath, [bin, ...args, "--data", data], {
        env,
        encoding: "utf8",
      });
      expect({ args, status, stderr }).toEqual({ args, status: 0, stderr: "" });
    }
    server.child.kill("SIGTERM");
    await server.ended;
    expect(npm()).toBe(false);
    expect(listing(folder)).toEqual(before);
  });

  test("does not install for development either", async () => {
    const { folder, npm, env } = production();
    const server = start(process.execPath, [join(folder, "bin/waypost.js"), "dev", "--port", "0"], {
      cwd: folder,
      env,
    });
    await server.ready;
    server.child.kill("SIGTERM");
    await server.ended;
    expect(npm()).toBe(false);
  });

  test("announces a console only if it has one", async () => {
    const { folder, env } = production();
    const run = async () => {
      const args = [join(folder, "bin/waypost.js"), "start", "--port", "0", "--data", join(folder, "data")];
      const server = start(process.execPath, args, { cwd: folder, env });
      const { status } = await fetch(`${await server.ready}/console/`);
      server.child.kill("SIGTERM");
      return { status, printed: await server.ended };
    };
    const without = await run();
    expect(without).toMatchObject({ status: 503, printed: /no console: .* npm run build:console builds it/ });
    expect(without.printed).not.toContain("console at");
    cpSync(join(home, "console/dist"), join(folder, "console/dist"), { recursive: true });
    const having = await run();
    expect(having).toMatchObject({ status: 200, printed: /console at http:\S+\/console\// });
    expect(having.printed).not.toContain("no console");
  });

  test("that lacks a package reports the command that installs it", () => {
    const { folder, npm, env } = production();
    rmSync(join(folder, "node_modules/fastify"));
    const { status, stderr } = spawnSync(process.execPath, [join(folder, "bin/waypost.js"), "start"], {
      env,
      encoding: "utf8",
    });
    const advice =
      "waypost: packages are missing (fastify). " +
      `Run "npm ci --omit=dev" in ${folder}, and run the command again.\n`;
    expect({ status, stderr }).toEqual({ status: 1, stderr: advice });
    expect(npm()).toBe(false);
  });
});

test("a probe from a checkout is answered before anything else is loaded", () => {
  const { folder, npm, env } = production();
  for (const name of ["src", "scripts", "node_modules", "bin/runSources.js"])
    rmSync(join(folder, name), { recursive: true });
  const args = [join(folder, "bin/waypost.js"), "health", "--port", "1"];
  const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
  const reason = "not ready: http://127.0.0.1:1/v2/health/ready: connect ECONNREFUSED 127.0.0.1:1";
  expect({ status, stderr }).toEqual({ status: 1, stderr: `waypost: ${reason}\n` });
  expect(npm()).toBe(false);
});

test("the development server of a checkout installs missing packages", () => {
  const { folder, npm, env } = production();
  mkdirSync(join(folder, ".git"));
  const { status, stderr } = spawnSync(process.execPath, [join(folder, "bin/waypost.js"), "dev"], {
    env,
    encoding: "utf8",
  });
  expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining("npm ci failed") });
  expect(npm()).toBe(true);
});

test("the first start of a checkout says what it does, and how far it is", async () => {
  const { folder, env } = production();
  mkdirSync(join(folder, ".git"));
  // An npm that waits until its progress was printed.
  const commands = temporaryFolder();
  writeFileSync(
    join(commands, "npm"),
    `#!/bin/sh\nwhile [ ! -e ${commands}/go ]; do sleep 0.1; done\nexit 1\n`,
  );
  chmodSync(join(commands, "npm"), 0o755);
  const child = spawn(process.execPath, [join(folder, "bin/waypost.js"), "dev"], {
    env: { PATH: `${commands}:${env.PATH}` },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr.on("data", (part: Buffer) => (said += part.toString()));
  await expect.poll(() => said).toMatch(/^waypost: \d+ of \d+ packages$/m);
  expect(said).toMatch(/^waypost: installing the dependencies into node_modules with "npm ci" \(/);
  writeFileSync(join(commands, "go"), "");
  // The pipe closes when the process that prints the progress has ended as well.
  await once(child, "close");
  expect(said).toContain("npm ci failed");
});

describe("a launcher that is killed ends its server in order:", () => {
  const serve = ["--port", "0"];

  test("the launcher of an older Node.js", async () => {
    const data = temporaryFolder();
    const args = [join(home, "scripts/run.js"), "src/server/cli/main.ts", "start", ...serve, "--data", data];
    const launcher = start(process.execPath, args, { cwd: home, env: { PATH: process.env.PATH } });
    await launcher.ready;
    launcher.child.kill("SIGKILL");
    expect(await launcher.ended).toContain('"msg":"stopped"');
  });

  test.each(["SIGKILL", "SIGTERM"] as const)("npm start, by %s", async (signal) => {
    const data = temporaryFolder();
    const npm = start("npm", ["start", "--", ...serve, "--data", data], {
      cwd: home,
      env: { PATH: process.env.PATH, HOME: data },
    });
    await npm.ready;
    npm.child.kill(signal);
    expect(await npm.ended).toContain('"msg":"stopped"');
  });

  test("npx waypost, by SIGKILL", async () => {
    const data = temporaryFolder();
    const args = ["--offline", "waypost", "start", ...serve, "--data", data];
    const npx = start("npx", args, { cwd: home, env: { PATH: process.env.PATH, HOME: data } });
    await npx.ready;
    npx.child.kill("SIGKILL");
    expect(await npx.ended).toContain('"msg":"stopped"');
  });

  test("but a server in the background survives the end of its shell", { tags: "long" }, async () => {
    const data = temporaryFolder();
    const log = join(data, "output");
    const command = `"${process.execPath}" bin/waypost.js start --port 0 --data "${data}"`;
    const serving = `${command} >"${log}" 2>&1 </dev/null`;
    const shell = spawnSync("sh", ["-c", `${serving} & echo $!`], {
      cwd: home,
      env: { PATH: process.env.PATH },
      encoding: "utf8",
    });
    const pid = Number(shell.stdout);
    onTestFinished(() => void process.kill(pid, "SIGKILL"));
    const url = await printedIn(log);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect((await fetch(`${url}/v2/health`)).status).toBe(200);
  });
});

async function printedIn(log: string): Promise<string> {
  for (;;) {
    const [, url] = /running at (http:[^\s"]+)/.exec(readFileSync(log, "utf8")) ?? [];
    if (url) return url;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("npm scripts begin with commands that every shell finds", () => {
  const commands = readdirSync(join(home, "node_modules/.bin"));
  for (const [name, script] of Object.entries(scripts ?? {}))
    for (const part of script.split(" && "))
      expect(["npm", "node", ...commands], name).toContain(part.split(" ")[0]);
});
