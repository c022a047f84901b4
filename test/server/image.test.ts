import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { writePackage } from "../../scripts/build/writePackage.ts";
import { findFreePort } from "../freePort.ts";
import { startDestination, temporaryFolder } from "./waypost.ts";

// There is no container engine where the tests run. So this test builds the file tree of the image, and
// starts in it what the Dockerfile says, as its user, with a root file system that cannot be written.

const dockerfile = readFileSync(join(import.meta.dirname, "../../Dockerfile"), "utf8").replaceAll("\\\n", "");
const [, finalStage = ""] = /\nFROM (?!.* AS )([^]*)$/.exec(dockerfile) ?? [];
const instruction = (name: string): string =>
  new RegExp(`^${name} (.*)$`, "m").exec(finalStage)?.[1] ?? `no ${name}`;
const [user = ""] = instruction("USER").split(":");
const environment = instruction("ENV").split(/\s+/);
const entrypoint = JSON.parse(instruction("ENTRYPOINT")) as string[];
const command = JSON.parse(instruction("CMD")) as string[];
const healthCommand = JSON.parse(/CMD (\[.*\])/.exec(instruction("HEALTHCHECK"))?.[1] ?? "null") as string[];

/** Why the tree cannot be entered here, or null. */
const obstacle =
  process.platform !== "linux" || process.getuid?.() !== 0
    ? "only root can enter another root folder"
    : spawnSync("unshare", ["--mount", "true"]).status !== 0
      ? "this system does not allow mounts"
      : null;

test("the image starts, stores, delivers and stops", { tags: "long" }, async ({ skip }) => {
  if (obstacle !== null) return skip(obstacle);
  const { enter, data } = await makeTree();
  const port = await findFreePort();
  const settings = [`WAYPOST_PORT=${port}`, "WAYPOST_EGRESS_ALLOW=127.0.0.0/8"];
  const server = enter(settings, [...entrypoint, ...command]);
  await server.printed(/running at /);

  const healthy = await enter(settings, healthCommand).ended;
  expect(healthy).toMatchObject({ code: 0, out: "ready\n" });
  const { out } = await enter(settings, [...entrypoint, "credentials"]).ended;
  const [, token = ""] = /^WAYPOST_TOKEN="(.*)"$/m.exec(out) ?? [];
  const destination = await startDestination();
  const published = await fetch(`http://127.0.0.1:${port}/v2/publish/${destination.url}/order`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: "tea",
  });
  expect(published.status).toBe(200);
  await destination.until((arrivals) => arrivals.length > 0);

  const write = `require("node:fs").writeFileSync("/app/mine", "")`;
  const writing = await enter([], ["node", "--eval", write]).ended;
  expect(writing).toMatchObject({ code: 1, err: expect.stringMatching(/EROFS|read-only/) });
  const id = await enter([], ["node", "--print", "process.getuid()"]).ended;
  expect(id.out).toBe(`${user}\n`);
  const stored = spawnSync("stat", ["--format=%u %a", join(data, "waypost.db")], { encoding: "utf8" });
  expect(stored.stdout).toBe(`${user} 600\n`);

  server.kill();
  expect((await server.ended).code).toBe(0);
});

/** Makes the file tree of the image. `enter` runs a command in it, with further variables. */
async function makeTree() {
  const folder = temporaryFolder();
  const root = join(folder, "root");
  const data = join(folder, "data");
  for (const name of ["data", "dev", "proc"]) mkdirSync(join(root, name), { recursive: true });
  mkdirSync(data);
  chmodSync(data, 0o700);
  chmodSync(folder, 0o755);
  chownSync(data, Number(user), Number(user));
  await writePackage(join(root, "app"), { withSite: true });
  const node = join(root, "usr/local/bin/node");
  copyInto(process.execPath, node);
  const libraries = spawnSync("ldd", [process.execPath], { encoding: "utf8" }).stdout;
  for (const [path] of libraries.matchAll(/\/\S+(?= \()/g)) copyInto(path, join(root, path));
  const script = join(folder, "enter.sh");
  writeFileSync(
    script,
    `set -e
mount --make-rprivate /
mount --bind "${root}" "${root}"
mount --rbind /dev "${root}/dev"
mount --bind /proc "${root}/proc"
mount --bind "${data}" "${root}/data"
mount -o remount,bind,ro "${root}"
exec chroot --userspec=${user}:${user} "${root}" "$@"
`,
  );
  const enter = (variables: readonly string[], args: readonly string[]) => {
    const path = "PATH=/usr/local/bin";
    const env = Object.fromEntries(
      [path, ...environment, ...variables].map((line) => line.split(/=(.*)/s).slice(0, 2)),
    ) as Record<string, string>;
    const [program = "", ...rest] = args;
    const inside = [`/usr/local/bin/${program}`, ...rest];
    const child = spawn("/usr/bin/unshare", ["--mount", "/bin/sh", script, ...inside], {
      env: { ...env, PATH: "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    let out = "";
    let err = "";
    child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()));
    const lines = createInterface({ input: child.stdout });
    const ended = once(child, "close").then(([code]) => ({ code: code as number | null, out, err }));
    const printed = (pattern: RegExp): Promise<void> =>
      new Promise((resolve, reject) => {
        lines.on("line", (line) => pattern.test(line) && resolve());
        void ended.then(() => reject(new Error(out + err)));
      });
    lines.on("line", (line) => (out += `${line}\n`));
    return { ended, printed, kill: () => child.kill("SIGTERM") };
  };
  return { enter, data };
}

function copyInto(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  copyFileSync(from, to);
  chmodSync(to, 0o755);
}
