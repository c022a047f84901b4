import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Image } from "./build.ts";
import { run } from "./build.ts";

/** How a container runs: as Compose or Kubernetes would run it from their files. */
export type Options = {
  image: Image;
  args: readonly string[];
  environment?: Readonly<Record<string, string>>;
  /** The folder that is mounted at /data. */
  data?: string;
  group?: number;
};

const prefix = "10.88.7";
/** The names that containers have for each other, and the ends of their addresses. */
const places = { waypost: 2, app: 3 } as const;
type Name = keyof typeof places;

const folder = mkdtempSync(join(tmpdir(), "waypost-image-"));
const hosts = join(folder, "hosts");

/** The address of a container, as another machine of its network has it. */
export const addressOf = (name: Name): string => `${prefix}.${places[name]}`;

/** Makes a network with two places for containers, each with its own name. */
export function openNetwork(): void {
  closeNetwork();
  run("ip", ["link", "add", "waypost0", "type", "bridge"]);
  run("ip", ["address", "add", `${prefix}.1/24`, "dev", "waypost0"]);
  run("ip", ["link", "set", "waypost0", "up"]);
  for (const [name, end] of Object.entries(places)) {
    const space = `waypost-${name}`;
    run("ip", ["netns", "add", space]);
    run("ip", ["link", "add", `wp-${name}`, "type", "veth", "peer", "name", "eth0", "netns", space]);
    run("ip", ["link", "set", `wp-${name}`, "master", "waypost0", "up"]);
    run("ip", ["-n", space, "address", "add", `${prefix}.${end}/24`, "dev", "eth0"]);
    for (const device of ["eth0", "lo"]) run("ip", ["-n", space, "link", "set", device, "up"]);
  }
  const lines = Object.entries(places).map(([name, end]) => `${prefix}.${end} ${name}`);
  writeFileSync(hosts, ["127.0.0.1 localhost", ...lines, ""].join("\n"));
}

/** Removes the network, if it exists. */
export function closeNetwork(): void {
  const quiet = (args: readonly string[]): unknown => spawnSync("ip", args, { stdio: "ignore" });
  for (const name of Object.keys(places)) quiet(["netns", "delete", `waypost-${name}`]);
  quiet(["link", "delete", "waypost0"]);
}

/** Writes the bundle that crun starts: not root, without capabilities, and with a read-only file system. */
function writeBundle(name: Name, { image, args, environment = {}, data, group }: Options): string {
  const bundle = join(folder, name);
  mkdirSync(bundle, { recursive: true });
  const [uid = 0] = image.user.split(":").map(Number);
  const gid = group ?? uid;
  const variables = Object.entries(environment).map(([variable, value]) => `${variable}=${value}`);
  const mounts = [
    { destination: "/proc", type: "proc", source: "proc" },
    { destination: "/dev", type: "tmpfs", source: "tmpfs", options: ["nosuid", "mode=755"] },
    { destination: "/etc/hosts", type: "bind", source: hosts, options: ["bind", "ro"] },
    ...(data === undefined
      ? []
      : [{ destination: "/data", type: "bind", source: data, options: ["bind", "rw"] }]),
  ];
  const none = { bounding: [], effective: [], permitted: [], inheritable: [], ambient: [] };
  const config = {
    ociVersion: "1.0.0",
    hostname: name,
    root: { path: image.root, readonly: true },
    process: {
      ...{ user: { uid, gid }, cwd: "/", noNewPrivileges: true, capabilities: none },
      args: [...image.entrypoint, ...args],
      env: [...image.environment, ...variables],
    },
    mounts,
    linux: {
      namespaces: [
        ...["pid", "ipc", "uts", "mount"].map((type) => ({ type })),
        { type: "network", path: `/run/netns/waypost-${name}` },
      ],
    },
  };
  writeFileSync(join(bundle, "config.json"), JSON.stringify(config));
  return bundle;
}

const crun = ["--cgroup-manager", "disabled"];

/** Runs a container to its end, and returns what it prints. */
export function runOnce(name: Name, options: Options): string {
  return run("crun", [...crun, "run", "--bundle", writeBundle(name, options), `waypost-${name}`]);
}

/** A container that runs. */
export type Container = {
  output(): string;
  /** Runs a command in the container, as its user. */
  execute(...args: readonly string[]): { code: number | null; out: string };
  /** Sends a signal, and returns the exit code. */
  end(signal: "TERM" | "KILL"): Promise<number | null>;
};

/** Starts a container. */
export function start(name: Name, options: Options): Container {
  const id = `waypost-${name}`;
  const log = join(folder, `${name}-${Date.now()}.log`);
  const file = openSync(log, "a");
  const child = spawn("crun", [...crun, "run", "--bundle", writeBundle(name, options), id], {
    stdio: ["ignore", file, file],
  });
  const ended = once(child, "exit").then(([code]) => code as number | null);
  return {
    output: () => readFileSync(log, "utf8"),
    execute: (...args) => {
      const command = ["exec", "--user", options.image.user, id, ...args];
      const { status, stdout } = spawnSync("crun", command, { encoding: "utf8" });
      return { code: status, out: stdout };
    },
    end: (signal) => {
      run("crun", ["kill", id, signal]);
      return ended;
    },
  };
}
