import { randomUUID } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Logger } from "pino";
import { systemClock } from "../../../engine/clock/clock.ts";
import type { ServerConfig } from "../../../settings/config.ts";
import { findFolderWarning, toStorePath } from "../../../settings/dataFolder.ts";
import { Replica, type ReplicaReport } from "./replica.ts";
import { writerCode } from "./writerCode.ts";

/** Returns the second copy of a folder store, or null if the settings name no folder for it. */
export function createReplica({ data, replicate }: ServerConfig, log: Logger): Replica | null {
  if (replicate === "") return null;
  const folder = resolve(replicate);
  const warning = findFolderWarning(folder);
  if (warning !== null) log.warn(`--replicate: ${warning}`);
  return new Replica({
    path: resolve(toStorePath(data)),
    folder,
    writerCode,
    identity: findIdentity(data),
    now: () => systemClock.now(),
    pause: (time) => systemClock.sleep(systemClock.now() + time, neverAborted),
    onEvent: (event) => {
      if (event.what === "complete") log.info(`${folder}: has a complete copy of the store`);
      else log.warn({ reason: event.reason }, `${folder}: ${warnings[event.what]}`);
    },
  });
}

const neverAborted = new AbortController().signal;

const warnings = {
  waiting: "the copy of the store cannot be written; it is behind until this works",
  broken: "the copy of the store is interrupted; it begins again with a copy of the whole store",
} as const;

/** Returns the identity of the store of a data folder. The first call gives it one. */
function findIdentity(data: string): string {
  const path = join(data, "replica-id");
  try {
    return readFileSync(path, "utf8").trim();
  } catch (error) {
    if (Reflect.get(error as object, "code") !== "ENOENT") throw error;
  }
  const identity = randomUUID();
  writeFileSync(`${path}.new`, `${identity}\n`, { mode: 0o600, flush: true });
  renameSync(`${path}.new`, path);
  return identity;
}

/** Returns what the health report says of a second copy. */
export const readReplicaHealth = (report: ReplicaReport | null) =>
  report && { replica: { lagSeconds: report.lag / 1000, complete: report.isComplete } };
