import type { Logger } from "pino";
import { alarm, elapsed, systemClock, systemRandom } from "../engine/clock/clock.ts";
import type { CommitLoss } from "../engine/core/cluster/commitLoss.ts";
import type { Millis, NodeId } from "../engine/core/values/basics.ts";
import { Refusal } from "../engine/core/values/errors.ts";
import { createIdGenerator } from "../engine/core/values/ids.ts";
import { minute } from "../engine/core/values/time.ts";
import type { KeySource } from "../engine/store/layout/keyRing.ts";
import { StorageRefused } from "../engine/store/layout/storageErrors.ts";
import { formatMoved } from "../engine/store/sql/movedMark.ts";
import type { OnMoved } from "../engine/store/sql/schema.ts";
import type { DiskReport } from "../engine/store/sqlite/diskGuard.ts";
import { embeddedStore, type EmbeddedStoreOptions } from "../engine/store/sqlite/embeddedStore.ts";
import type { OnDamage } from "../engine/store/sqlite/fileCheck.ts";
import type { ClockReport } from "../engine/store/sqlite/storeTime.ts";
import type { Store } from "../engine/store/store.ts";
import type { ReplicaReport } from "../operations/backup/replica/replica.ts";
import { createReplica } from "../operations/backup/replica/settings.ts";
import type { ServerConfig } from "../settings/config.ts";
import { findFolderWarning, lockDataFolder, toStorePath } from "../settings/dataFolder.ts";
import { assertKeys, prepareKeys } from "../settings/encryptionKeys.ts";
import { version } from "../settings/version.ts";

/**
 * An opened store. Nodes that start together run the function of `asFirstNode` one after another, so that
 * only the first of them creates what a new store needs.
 */
export type OpenedStore = {
  store: Store;
  keys: KeySource;
  /** The number of messages that an earlier process was sending and that are due again. */
  recovered: number;
  asFirstNode<T>(run: () => Promise<T>): Promise<T>;
  /** Returns the state of the second copy of the store, or null if none is kept. */
  readReplica(): ReplicaReport | null;
  /** Returns how many batches of acknowledged changes the database has lost since this node started. */
  lostBatches(): number;
  close(): Promise<void>;
};

/** What to do if an SQLite store is ahead of the clock: see `EmbeddedStoreOptions`. Tools do nothing. */
export type ClockCheck = NonNullable<EmbeddedStoreOptions["clockCheck"]>;

/** The options of `openStore`, besides the settings. */
type OpenStoreOptions = {
  node: NodeId;
  log: Logger;
  reclaims?: boolean;
  clockCheck?: ClockCheck;
  /**
   * Whether a store is served from which everything was moved; it then is no longer marked. Tools use it as
   * it is.
   */
  servesMoved?: boolean;
  /** Called when another version has replaced the tables. */
  onOutdated?: (message: string) => void;
  /** Called when the disk has failed. From then on, nothing is stored. */
  onBroken?: (error: Error) => void;
  /** Called once for each damaged part that is found. */
  onDamage?: OnDamage;
};

/**
 * Opens the store of the settings. Only one process uses a data folder, so messages that an earlier process
 * has leased are made due at once, unless `reclaims` is false.
 */
export async function openStore(settings: ServerConfig, options: OpenStoreOptions): Promise<OpenedStore> {
  const opened =
    settings.databaseUrl === "" ? await openFolder(settings, options) : await openDatabase(settings, options);
  const { log, reclaims = true } = options;
  try {
    await assertKeys(opened.store.read, opened.keys);
    if (opened.keys === null && reclaims) log.warn(unencryptedWarning);
    return opened;
  } catch (error) {
    await opened.close();
    throw error;
  }
}

async function openDatabase(settings: ServerConfig, options: OpenStoreOptions): Promise<OpenedStore> {
  const { node, log, onOutdated = () => undefined, clockCheck } = options;
  if (clockCheck === "accept") throw new StorageRefused(noClockOfDatabase);
  if (settings.replicate !== "") throw new StorageRefused(noReplicaOfDatabase);
  const keys = await prepareKeys(settings);
  const { inFoundation, postgresStore, slowRoundTrip } = await import("../engine/store/postgres/database.ts");
  const location = { url: settings.databaseUrl, pooling: settings.databasePooling, keys, clock: systemClock };
  const onRoundTrip = atMostOncePerMinute((roundTrip: Millis) => {
    if (roundTrip > slowRoundTrip) log.warn({ roundTrip }, slowDatabaseWarning);
    else log.debug({ roundTrip }, "round trip to the database, in milliseconds");
  });
  let lostBatches = 0;
  const onLoss = ({ batches, from, to }: CommitLoss): void => {
    lostBatches += batches;
    log.fatal({ batches, from: from === null ? null : new Date(from), to: new Date(to) }, lostChangesError);
  };
  const onClockJump = (jump: Millis): void => log.warn({ jump }, clockJumpWarning);
  const store = await postgresStore({
    ...location,
    node,
    version,
    random: systemRandom,
    elapsed,
    maxBody: settings.maxBody,
    skipsCallsOf: settings.skipCalls,
    onOutdated,
    onRoundTrip,
    onLoss,
    onClockJump,
    onMoved: checkMoved(options),
  });
  return {
    store,
    keys,
    // Other nodes take over what a dead node was sending.
    recovered: 0,
    readReplica: () => null,
    lostBatches: () => lostBatches,
    asFirstNode: (run) => inFoundation(location, run),
    close: () => store.close(),
  };
}

const noClockOfDatabase =
  "--accept-clock: is for a store in a data folder; on PostgreSQL, times are those of the database; " +
  "remove the flag";

const noReplicaOfDatabase =
  "--replicate: is for a store in a data folder; a PostgreSQL database has its own replication";

/** Calls `run` at most once a minute. */
function atMostOncePerMinute<T>(run: (value: T) => void): (value: T) => void {
  let ranAt = -Infinity;
  return (value) => {
    if (elapsed() - ranAt < minute) return;
    ranAt = elapsed();
    run(value);
  };
}

const slowDatabaseWarning =
  "the round trip to the database takes longer than 250 ms, " +
  "and this node holds row locks for several round trips, " +
  "which slows down other nodes; run this node closer to the database";

const clockJumpWarning =
  "the clock of the database jumped by more than 5 s (jump in ms); if it went back, " +
  "the times that this server gives to messages advance at nine tenths of normal speed " +
  "until the clock has caught up: synchronize the clocks of all database hosts (NTP)";

const lostChangesError =
  "the database lost changes that it had acknowledged to this node between the times `from` and `to`, " +
  "as after a failover to " +
  "a standby that was behind; the server continues with what is left: " +
  "compare it with what was published in that time";

const unencryptedWarning =
  "tokens, passwords and keys are stored unencrypted in the database; " +
  'set WAYPOST_KEYS to the output of "waypost keys new" on all nodes, then run "waypost keys reseal"';

/** Returns what decides whether a server uses a store from which everything was moved. Tools have none. */
const checkMoved = ({ reclaims = true, servesMoved = false, log }: OpenStoreOptions): OnMoved | undefined =>
  reclaims
    ? (moved) => {
        if (!servesMoved) throw new StorageRefused(`${formatMoved(moved)}; ${movedAdvice}`);
        log.warn(moved, movedWarning);
      }
    : undefined;

const movedAdvice =
  "start the server there, or, if nothing has been served there, start it here with --force, which " +
  "removes this mark; servers on both would send the unfinished messages a second time";

const movedWarning =
  "everything in this store was moved (to, at), and --force has removed that mark: this store is the one " +
  "in use from now on; a server on the other store would send the same unfinished messages a second time";

async function openFolder(settings: ServerConfig, options: OpenStoreOptions): Promise<OpenedStore> {
  const { node, log, reclaims = true, clockCheck = "none", onBroken = () => undefined } = options;
  const { onDamage = ({ text }) => log.error(text) } = options;
  const { data } = settings;
  const release = lockDataFolder(data);
  const warning = findFolderWarning(data);
  if (warning !== null && reclaims) log.warn(warning);
  try {
    const keys = await prepareKeys(settings);
    const momentSource = {
      node,
      now: () => systemClock.now(),
      random: systemRandom,
      newId: createIdGenerator(systemRandom),
      maxBody: settings.maxBody,
      skipsCallsOf: settings.skipCalls,
    };
    const replica = reclaims ? createReplica(settings, log) : null;
    const store = await embeddedStore({
      path: toStorePath(data),
      momentSource,
      keys,
      pause,
      alarm,
      elapsed,
      onBroken,
      onDamage,
      replica,
      onDisk: (report) => logDisk(log, report),
      clockCheck,
      onMoved: checkMoved(options),
      onAccepted: ({ clock, usedAt }) =>
        log.warn({ clock: new Date(clock), latestUsed: new Date(usedAt) }, clockAcceptedWarning),
      onClock: (report) => logClock(log, report),
    });
    const close = async (): Promise<void> => {
      await store.close();
      release();
    };
    const readReplica = (): ReplicaReport | null => replica?.report() ?? null;
    const recovered = reclaims ? await reclaimLeases(store, { node, log }) : 0;
    return { store, keys, recovered, readReplica, lostBatches: () => 0, asFirstNode: (run) => run(), close };
  } catch (error) {
    release();
    throw error;
  }
}

function logDisk(log: Logger, { what, is, freeBytes, neededBytes }: DiskReport): void {
  const sizes = { freeBytes, neededBytes };
  if (what === "short")
    if (is) log.warn(sizes, shortDiskWarning);
    else log.info(sizes, "the disk has room; history is kept for its whole retention again");
  else if (is) log.error(sizes, lowDiskError);
  else log.warn(sizes, "the disk has room again; new messages are accepted");
}

const shortDiskWarning =
  "the disk has little room: history is removed before its retention ends, the oldest first; unfinished " +
  "messages and dead letters are kept; free some space (sizes in bytes)";

const lowDiskError =
  "the disk is almost full: new messages are refused with disk-low, and what was accepted is delivered; " +
  "free some space, and the server resumes by itself (sizes in bytes)";

function logClock(log: Logger, { clock, usedAt, followsClock }: ClockReport): void {
  const times = { clock: new Date(clock), latestUsed: new Date(usedAt) };
  if (followsClock) log.error(times, clockFarBehindError);
  else log.warn(times, clockBehindWarning);
}

const clockAcceptedWarning =
  "the clock was accepted although the store has used later times; stored delays were moved back by the " +
  "difference, and the next times of schedules were computed again; until the clock passes latestUsed, " +
  "history is not removed by its age, and searches by time find new messages at latestUsed";

const clockBehindWarning =
  "the clock is behind the latest time that the store has used; times of the store continue from there and " +
  "advance at nine tenths of normal speed until the clock has caught up: synchronize the clock (NTP)";

const clockFarBehindError =
  "the clock is more than an hour behind the latest time that the store has used; the server follows the " +
  "clock, so stored delays end later by the difference, and new messages may be sent before older ones: " +
  "check the clock";

const reclaimLimit = 1000;

/**
 * Makes the messages that an earlier process had leased due, and returns their number. If storage refuses a
 * row, the server starts anyway.
 */
async function reclaimLeases(store: Store, { node, log }: { node: NodeId; log: Logger }): Promise<number> {
  let recovered = 0;
  try {
    for (let more = true; more;) {
      const { reclaimed } = await store.execute("reclaim", { node, limit: reclaimLimit });
      recovered += reclaimed;
      more = reclaimed === reclaimLimit;
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
    log.error(
      { err: error },
      "could not reclaim the previous process's in-flight messages; " +
        "they are sent again when their leases expire",
    );
  }
  return recovered;
}

const pause = (time: Millis): Promise<void> => systemClock.sleep(systemClock.now() + time, neverAborted);
const neverAborted = new AbortController().signal;
