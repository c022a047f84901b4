/** A separate network namespace for a server that calls addresses on the internet. It has only loopback. */
import { spawnSync } from "node:child_process";

const setUp = "ip link set lo up";

/** Returns a command that runs another one in a new network namespace. The process id stays the same. */
export const inNewNamespace = (command: readonly string[]): string[] => [
  "unshare",
  "--net",
  "sh",
  "-c",
  `${setUp} && exec "$@"`,
  "sh",
  ...command,
];

/** Returns the start of a command that joins the network namespace of a process. */
export const joinNamespace = (pid: number): string[] => ["nsenter", "--target", String(pid), "--net"];

/** Reports whether this user may create a network namespace here. */
export function canIsolate(): boolean {
  const created = spawnSync("unshare", ["--net", "sh", "-c", `${setUp} && nsenter --version`]);
  return created.status === 0;
}
