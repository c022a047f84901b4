import { setFlagsFromString } from "node:v8";
import { isIPv6 } from "node:net";
import type { FastifyInstance } from "fastify";
import type { Logger } from "pino";
import { createAccessCounters } from "../api/auth/accessCounters.ts";
import type { RequestLine } from "../api/route/requestLog.ts";
import type { ApiOptions } from "../api/server/fastify.ts";
import { createApi } from "../api/server/fastify.ts";
import type { ServerConfig } from "./config.ts";
import type { NewAccount } from "./credentials.ts";
import { findFolderWarning, toStorePath, lockDataFolder } from "./dataFolder.ts";
import { commandLine, createServerAdmin, listenForAdmin } from "./accountAdmin.ts";
import type { CommitLoss } from "../core/nodes/commitLoss.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import { isDeleted } from "../core/commands/account.ts";
import { limitToDescriptors } from "../core/fairness/descriptors.ts";
import { Refusal } from "../core/values/errors.ts";
import type { Account, Delivery, Millis, NodeId, Outcome } from "../core/model/message.ts";
import { createIdGenerator } from "../core/values/ids.ts";
import { parseUrl } from "../core/values/url.ts";
import { checkKeys, prepareKeys } from "./encryptionKeys.ts";
import type { Settled } from "../core/commands/settle.ts";
import { alarm as wakeAfter, elapsed, idleAlarm as wakeWhenIdle, createLongWork, systemClock, systemRandom } from "../clock/clock.ts";
import { descriptorLimit } from "../delivery/http/descriptors.ts";
import { createDeliver } from "../delivery/deliver.ts";
import type { DispatcherLog } from "../delivery/dispatcher.ts";
import { Dispatcher } from "../delivery/dispatcher.ts";
import { createEgress } from "../delivery/http/egress.ts";
import { createSpendingDuty } from "../maintenance/meterSpending.ts";
import { createStorageTask } from "../maintenance/storage.ts";
import { createTrimmingTask } from "../maintenance/trimHistory.ts";
import { createPromptRetentionTask, createRetentionTask, MaintenanceScheduler } from "../maintenance/scheduler.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import type { OnDamage } from "../store/sqlite/fileCheck.ts";
import { embeddedStore } from "../store/sqlite/embeddedStore.ts";
import type { Store } from "../store/store.ts";
import { minute } from "../core/values/time.ts";

/** A server that is up. `stop` ends it in order and resolves when nothing of it is left. */
export type RunningServer = {
  url: string;
  accountUrl: string | null;
  accounts: readonly Account[];
  created: readonly Account[];
  stop(): Promise<void>;
};

export type ServeOptions = {
  log: Logger;
  firstAccounts: () => readonly NewAccount[];
  /** Is told when the disk has failed: this process can do no more than end, and another one read what is there. */
  onBroken?: (error: Error) => void;
};

/** Puts the parts together. `firstAccounts` are made when the store has none; `created` tells which were. */
export async function serve(
  settings: ServerConfig,
  { log, firstAccounts, onBroken = () => undefined }: ServeOptions,
): Promise<RunningServer> {
  disablePretenuring();
  const newId = createIdGenerator(systemRandom);
  const node = newId("nod", systemClock.now());
  const health: Health = { outdated: false, damage: null };
  const onOutdated = (message: string): void => {
    if (!health.outdated) log.fatal(`${message}; this server changes nothing any more, and what it had under way goes to the others`);
    health.outdated = true;
  };
  const onDamage: OnDamage = ({ isFile, text }) => {
    log.error(text);
    if (isFile) health.damage = text;
  };
  const opened = await openStore(settings, { node, log, onOutdated, onBroken, onDamage });
  try {
    return await serveStore(settings, { log, firstAccounts, opened, health });
  } catch (error) {
    await opened.close();
    throw error;
  }
}

/** `inFoundation` runs what only the first of all nodes shall do: one node after another. */
type OpenedStore = { store: Store; keys: KeySource; asFirstNode<T>(run: () => Promise<T>): Promise<T>; close(): Promise<void> };

type OpenStoreOptions = {
  node: NodeId;
  log: Logger;
  reclaims?: boolean;
  /** Is told when the tables were replaced by those of another version. */
  onOutdated?: (message: string) => void;
  /** Is told when the disk has failed. Nothing is stored from then on. */
  onBroken?: (error: Error) => void;
  /** Hears once of each thing that is found damaged. */
  onDamage?: OnDamage;
};

/** The store the settings name. A data folder is this process's alone, so what a dead one had leased is due at once, unless `reclaims` is false. */
export async function openStore(settings: ServerConfig, options: OpenStoreOptions): Promise<OpenedStore> {
  const opened = settings.databaseUrl === "" ? await openFolder(settings, options) : await openDatabase(settings, options);
  const { log, reclaims = true } = options;
  try {
    await checkKeys(opened.store.read, opened.keys);
    if (opened.keys === null && reclaims) log.warn(unencryptedWarning);
    return opened;
  } catch (error) {
    await opened.close();
    throw error;
  }
}

async function openDatabase(settings: ServerConfig, { node, log, onOutdated = () => undefined }: OpenStoreOptions): Promise<OpenedStore> {
  const keys = await prepareKeys(settings);
  const { inFoundation, postgresStore, slowRoundTrip } = await import("../store/postgres/database.ts");
  const location = { url: settings.databaseUrl, pooling: settings.databasePooling, keys, clock: systemClock };
  const onRoundTrip = atMostOncePerMinute((roundTrip: Millis) => {
    if (roundTrip > slowRoundTrip) log.warn({ roundTrip }, slowDatabaseWarning);
    else log.debug({ roundTrip }, "round trip to the database, in milliseconds");
  });
  const onLoss = ({ batches, from, to }: CommitLoss): void =>
    log.fatal({ batches, from: from === null ? null : new Date(from), to: new Date(to) }, lostChangesError);
  const onClockJump = (jump: Millis): void => log.warn({ jump }, clockJumpWarning);
  const store = await postgresStore({ ...location, node, random: systemRandom, elapsed, onOutdated, onRoundTrip, onLoss, onClockJump });
  return { store, keys, asFirstNode: (run) => inFoundation(location, run), close: () => store.close() };
}

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
  "the round trip to the database takes longer than 250 ms; this node holds row locks for several round trips, so it slows down the other nodes: run it closer to the database";

const clockJumpWarning =
  "the clock of the database has jumped by more than 5 s (jump, in milliseconds); if it went back, the time of messages continues at nine tenths of its speed until the clock has caught up: keep the clocks of all hosts of the database right (NTP)";

const lostChangesError =
  "the database has lost what it had acknowledged to this node between these two times, as after a failover to a standby that was behind; the server goes on with what is left: compare what was published in that time with what is there";

const unencryptedWarning =
  'tokens, passwords and keys are kept in clear in the database; set WAYPOST_KEYS to what "waypost keys new" prints, the same for all nodes, and then "waypost keys reseal"';

async function openFolder(
  settings: ServerConfig,
  { node, log, reclaims = true, onBroken = () => undefined, onDamage = ({ text }) => log.error(text) }: OpenStoreOptions,
): Promise<OpenedStore> {
  const { data } = settings;
  const release = lockDataFolder(data);
  const warning = findFolderWarning(data);
  if (warning !== null && reclaims) log.warn(warning);
  try {
    const keys = await prepareKeys(settings);
    const momentSource = { node, now: () => systemClock.now(), random: systemRandom, newId: createIdGenerator(systemRandom) };
    const store = await embeddedStore({ path: toStorePath(data), momentSource, keys, pause, elapsed, onBroken, onDamage });
    const close = async (): Promise<void> => {
      await store.close();
      release();
    };
    if (reclaims) await reclaimLeases(store, { node, log });
    return { store, keys, asFirstNode: (run) => run(), close };
  } catch (error) {
    release();
    throw error;
  }
}

const reclaimLimit = 1000;

/** A row that the storage refuses must not keep the server from starting. */
async function reclaimLeases(store: Store, { node, log }: { node: NodeId; log: Logger }): Promise<void> {
  try {
    for (let more = true; more;) more = (await store.execute("reclaim", { node, limit: reclaimLimit })).reclaimed === reclaimLimit;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    log.error({ err: error }, "what the last server had under way could not be taken over; it is sent again when its leases run out");
  }
}

const pause = (time: Millis): Promise<void> => systemClock.sleep(systemClock.now() + time, neverAborted);
const neverAborted = new AbortController().signal;

/** `outdated`: the tables are those of another version. `damage`: what is damaged of the database file, since it was found. */
type Health = { outdated: boolean; damage: string | null };
type ServeStoreOptions = { log: Logger; firstAccounts: () => readonly NewAccount[]; opened: OpenedStore; health: Health };

/**
 * Those there are, and those that are made in a new store, by one of the nodes that start at once. What is left of a deleted account stays for as long
 * as there is no other one (see `core/commands/account.ts`), so a store of which all were deleted is no new one.
 */
async function findOrCreateAccounts({ store, asFirstNode }: OpenedStore, firstAccounts: ServeStoreOptions["firstAccounts"]) {
  const present = await store.read.accounts();
  if (present.length > 0) return { present, created: [] };
  return asFirstNode(async () => {
    const existing = await store.read.accounts();
    const creating = existing.length > 0 ? [] : firstAccounts().map((account) => store.execute("createAccount", account));
    return { present: existing, created: await Promise.all(creating) };
  });
}

const noAccountWarning = 'all accounts were deleted, so nobody can ask for anything; "waypost account create <name>" makes one';

const otherTables = "the tables are those of another version than this server, which changes nothing any more";

async function serveStore(settings: ServerConfig, { log, firstAccounts, opened, health }: ServeStoreOptions): Promise<RunningServer> {
  const { store, keys, close } = opened;
  const newId = createIdGenerator(systemRandom);
  const clock = systemClock;
  const { present, created } = await findOrCreateAccounts(opened, firstAccounts);
  if (created.length === 0 && present.every(isDeleted)) log.warn(noAccountWarning);
  const egress = createEgress({ allow: settings.egressAllow });
  const capacityLimits = readCapacityLimits(settings, log);
  const longWork = createLongWork();
  const deliverer = createDeliver({
    egress,
    clock,
    longWork,
    region: settings.region,
    newId: (kind) => newId(kind, clock.now()),
    limits: toDeliverLimits(settings, capacityLimits),
  });
  const logFailure = (message: string, error: unknown): void => log.error({ err: error }, message);
  const capacity = { total: capacityLimits.capacity, perHost: settings.handsPerHost };
  const deliveryLog = { attempt: createAttemptLog(log), failure: logFailure };
  const dispatcher = new Dispatcher({ store, deliver: deliverer.deliver, clock, capacity, log: deliveryLog });
  const retention = toRetention(settings);
  const prices = toPrices(settings);
  const scheduler = new MaintenanceScheduler({ tasks: createTasks({ store, clock, retention, prices }), clock, logFailure });
  let isStopping = false;
  const createAdmin = (actor: Actor) =>
    createServerAdmin(store, { logRetention: settings.logRetention, actor, keys, newSecret: () => newId("sig", clock.now()), url });
  /** With the port that was taken, if any was asked for. */
  const url = (): string => settings.publicUrl || formatUrl(settings.host, api.server.address());
  const sharing = settings.databaseUrl === "" ? undefined : { store, ...clock };
  const apiParts: ApiOptions = {
    store,
    now: () => clock.now(),
    longWork,
    ...toApiSettings(settings),
    refusedHost: egress.refusedHost,
    log: createRequestLog(log),
    wakeWhenIdle,
    wakeAfter,
    notReadyReason: () => (isStopping ? "the server is stopping" : health.outdated ? otherTables : health.damage),
    health: () => ({ inFlight: dispatcher.inFlight }),
    counted: createAccessCounters(() => clock.now(), sharing, settings.refusedPerSecond),
    ...(settings.operatorPassword !== "" && { operator: { password: settings.operatorPassword, accountAdminFor: createAdmin } }),
  };
  const api = createApi(apiParts);
  const accountApi = settings.accountPort === null ? null : createApi({ ...apiParts, servesAccountsOnly: true });
  await api.listen({ port: settings.port, host: settings.host });
  await accountApi?.listen({ port: settings.accountPort ?? 0, host: settings.host }).catch((error: unknown) => closeAndThrow(api, error));
  const adminServer = settings.databaseUrl === "" ? await listenForAdmin(settings.data, createAdmin(commandLine)) : null;
  dispatcher.start();
  scheduler.start();
  return {
    url: formatUrl(settings.host, api.server.address()),
    accountUrl: accountApi && formatUrl(settings.host, accountApi.server.address()),
    accounts: [...present, ...created],
    created,
    stop: async () => {
      isStopping = true;
      adminServer?.close();
      await Promise.all([api, ...(accountApi ? [accountApi] : [])].map((server) => closeWithin(server, settings.grace)));
      await dispatcher.stop(settings.grace);
      await scheduler.stop();
      await deliverer.close();
      await close();
    },
  };
}

/** Returns the settings of the server that the API takes as they are. */
const toApiSettings = (settings: ServerConfig) => ({
  retention: toRetention(settings),
  maxQueues: settings.maxQueues,
  brand: settings.brand,
  region: settings.region,
  corsOrigins: settings.corsOrigin,
  sendsFrom: settings.sendsFrom.map((network) => (network.includes("/") ? network : `${network}/${isIPv6(network) ? 128 : 32}`)),
  prices: toPrices(settings),
  reservedPrices: settings.reservedPrices,
  trustProxy: settings.trustProxy.length > 0 ? settings.trustProxy : false,
  fastPath: settings.fastPath,
  publicUrl: settings.publicUrl,
});

/** Returns how many deliveries and sockets the process can have, within its file descriptors. */
function readCapacityLimits({ hands: maxDeliveries }: ServerConfig, log: Logger): ReturnType<typeof limitToDescriptors> {
  const descriptors = descriptorLimit();
  const capacityLimits = limitToDescriptors(descriptors, maxDeliveries);
  if (capacityLimits.capacity < maxDeliveries) log.warn({ descriptors, deliveries: capacityLimits.capacity }, fewDescriptorsWarning);
  return capacityLimits;
}

const toDeliverLimits = (
  { responseLimit, connectTimeout }: ServerConfig,
  { capacity, sockets }: ReturnType<typeof limitToDescriptors>,
) => ({
  responseBytes: responseLimit,
  connectTimeout,
  connectionsPerOrigin: capacity,
  sockets,
});

const fewDescriptorsWarning =
  "this process may open too few files for as many deliveries as --hands allows; at most half of its descriptors go to destinations: raise the limit (ulimit -n)";

const toRetention = ({ logRetention, dlqRetention, auditRetention }: ServerConfig) => ({
  log: logRetention,
  deadLetters: dlqRetention,
  audit: auditRetention,
});

const toPrices = ({ messagePrice, workflowPrice, bandwidthPrice }: ServerConfig) => ({
  messages: messagePrice,
  workflowMessages: workflowPrice,
  gigabyte: bandwidthPrice,
});

type TaskOptions = { store: Store; clock: typeof systemClock } & {
  retention: ReturnType<typeof toRetention>;
  prices: ReturnType<typeof toPrices>;
};

/** Everything that the server does at its own pace. */
const createTasks = ({ store, clock, retention, prices }: TaskOptions) => [
  createRetentionTask({ store, clock, retention }),
  createPromptRetentionTask({ store, clock, retention }),
  createTrimmingTask({ store, clock }),
  createSpendingDuty({ store, clock, prices }),
  createStorageTask({ store, clock }),
];

/** One port is not enough: who comes to the other one in between is sent away. */
async function closeAndThrow(api: FastifyInstance, error: unknown): Promise<never> {
  await api.close();
  throw error;
}

/** Lets requests that are under way end, but not for ever: one that never ends must not keep the server from stopping. */
async function closeWithin(api: FastifyInstance, grace: Millis): Promise<void> {
  const closed = new AbortController();
  const closing = api.close().finally(() => closed.abort());
  await systemClock.sleep(systemClock.now() + grace, closed.signal);
  api.server.closeAllConnections();
  await closing;
}

/** Where clients reach a server: the public URL if it has one, else the address it listens at. */
export const clientUrl = ({ host, port, publicUrl }: Pick<ServerConfig, "host" | "port" | "publicUrl">): string =>
  publicUrl === "" ? formatUrl(host, { port }) : publicUrl;

function formatUrl(host: string, address: { port: number } | string | null): string {
  const port = address && typeof address === "object" ? address.port : 0;
  const name = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}

/** One line per attempt: failures always, and as warnings where the message has failed for good; successes if asked for. Never a header or a body. */
function createAttemptLog(log: Logger): DispatcherLog["attempt"] {
  return ({ message, attempt }: Delivery, { status, error, took }: Outcome, settled: Settled["became"]) => {
    const level = settled === "delivered" ? "debug" : settled === "failed" ? "warn" : "info";
    if (!log.isLevelEnabled(level)) return;
    log[level](
      { messageId: message.id, account: message.account, host: readHostOnly(message.url), attempt, status, error, ms: took, settled },
      "attempt",
    );
  };
}

/** One line per request: our own faults always, all others when asked for. */
function createRequestLog(log: Logger): (status: number, line: () => RequestLine) => void {
  return (status, line) => {
    const level = status < 500 ? "debug" : status === 503 ? "warn" : "error";
    if (log.isLevelEnabled(level)) log[level](line(), "request");
  };
}

/** Paths and queries of destinations can hold secrets. */
const readHostOnly = (url: string): string => parseUrl(url)?.host ?? "";

/**
 * V8 puts all objects of a kind among the old ones once it has seen many of them live for a while. Messages are gone after some
 * milliseconds, and what was put there is found by a full garbage collection only (docs/decisions/0034).
 */
function disablePretenuring(): void {
  setFlagsFromString("--no-allocation-site-pretenuring");
}
