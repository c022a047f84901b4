import { closeSync, fsyncSync, openSync, writeSync } from "node:fs";
import { availableParallelism, freemem, release, totalmem } from "node:os";
import type { ExplainedSetting, ServerConfig } from "../../settings/config.ts";
import { version } from "../../settings/version.ts";
import { systemClock } from "../../engine/clock/clock.ts";
import type { TableName } from "../../engine/core/decision/command.ts";
import { tables } from "../../engine/store/catalog/tables.ts";
import type { FoundServer } from "../../settings/foundServer.ts";
import type { FindConditions } from "../operation.ts";
import type { Finding, Verdict } from "./finding.ts";
import { runChecks } from "./finding.ts";
import { listMachineChecks, sumStoreBytes } from "./machine.ts";
import { listNetworkChecks, listServerChecks } from "./network.ts";
import type { StoreView } from "./openForChecks.ts";
import { checkStore } from "./store.ts";

/** A bundle cannot be written. The text says what to do. */
export class BundleRefused extends Error {}

/** `also` reads more of the store. */
type DiagnoseOptions = {
  /** Finds the running server of a data folder. */
  findServer(data: string): Promise<FoundServer>;
  /** Returns the functions that find what is wrong with the things of operations. */
  loadFinders(): Promise<readonly FindConditions[]>;
  also?(view: StoreView): Promise<void>;
};

/**
 * Checks the machine, the network, the store and the running server of the settings. Changes nothing. `also`
 * reads more of the store.
 */
export async function diagnose(
  settings: ServerConfig,
  { findServer, loadFinders, also }: DiagnoseOptions,
): Promise<Finding[]> {
  const server = settings.databaseUrl === "" ? await findServer(settings.data) : "none";
  // Nodes on PostgreSQL are not known here, so it is assumed that one runs.
  const isServed = server !== "none" || settings.databaseUrl !== "";
  return [
    ...(await runChecks([...listMachineChecks(settings), ...listNetworkChecks()])),
    ...(await checkStore(settings, { isServed, finders: await loadFinders(), ...(also && { also }) })),
    ...(await runChecks(listServerChecks(settings, server))),
  ];
}

/** Returns the worst verdict. */
export const worstVerdict = (findings: readonly Finding[]): Verdict =>
  (["problem", "warning", "ok"] as const).find((verdict) =>
    findings.some((finding) => finding.verdict === verdict),
  ) ?? "ok";

/** The maximum number of rows of a table that are counted. */
const mostCounted = 1_000_000;

async function countRows({ connection }: StoreView): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const name of Object.keys(tables) as TableName[]) {
    const sql = `select count(*) as n from (select 1 as one from ${tables[name].name} limit ?) as counted`;
    const [row] = await connection.query(sql, [mostCounted]);
    counts[name] = Number(row?.n ?? 0);
  }
  return counts;
}

/**
 * Writes what a maintainer needs to help with a problem into a new file: versions, settings, findings and
 * numbers of rows. It has no payload, no name, no address of a destination, no token and no key.
 */
export async function writeBundle(
  file: string,
  {
    settings,
    explained,
    ...finds
  }: { settings: ServerConfig; explained: readonly ExplainedSetting[] } & Omit<DiagnoseOptions, "also">,
): Promise<Finding[]> {
  const opened = openNew(file);
  try {
    let rows: Record<string, number> = {};
    const findings = await diagnose(settings, {
      ...finds,
      also: async (view) => void (rows = await countRows(view)),
    });
    const content = {
      createdAt: new Date(systemClock.now()).toISOString(),
      waypost: version,
      node: process.versions.node,
      system: {
        ...{ platform: process.platform, arch: process.arch, release: release() },
        ...{ cores: availableParallelism(), memory: totalmem(), freeMemory: freemem() },
      },
      settings: explained.map(withoutHosts),
      findings,
      rows,
      storeBytes: settings.databaseUrl === "" ? readStoreBytes(settings.data) : null,
    };
    writeSync(opened, `${JSON.stringify(content, null, 2)}\n`);
    fsyncSync(opened);
    return findings;
  } finally {
    closeSync(opened);
  }
}

/** Replaces the destinations that are allowed by their number. */
function withoutHosts(setting: ExplainedSetting): ExplainedSetting {
  if (setting.name !== "egressAllow" || setting.value === "") return setting;
  const { length } = setting.value.split(",");
  return { ...setting, value: `(${length} ${length === 1 ? "entry" : "entries"})` };
}

function openNew(file: string): number {
  try {
    return openSync(file, "wx", 0o600);
  } catch (error) {
    const isThere = Reflect.get(error as object, "code") === "EEXIST";
    throw new BundleRefused(
      isThere
        ? `${file}: already exists; choose another name`
        : `${file}: cannot be written; choose a folder that exists and can be written`,
      { cause: error },
    );
  }
}

function readStoreBytes(folder: string): number | null {
  try {
    return sumStoreBytes(folder);
  } catch {
    return null;
  }
}
