import { setFlagsFromString } from "node:v8";
import { isIPv6 } from "node:net";
import type { FastifyInstance } from "fastify";
import type { Logger } from "pino";
import { countedFrom } from "../api/auth/counted.ts";
import type { RequestLine } from "../api/route/requestLog.ts";
import type { ApiParts } from "../api/server/fastify.ts";
import { createApi } from "../api/server/fastify.ts";
import type { Settings } from "./config.ts";
import type { NewAccount } from "./credentials.ts";
import { folderWarning, storePath, takeDataFolder } from "./dataFolder.ts";
import { commandLine, deskOf, openDesk } from "./accountAdmin.ts";
import type { Loss } from "../core/nodes/acknowledged.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import { isDeleted } from "../core/commands/account.ts";
import { withinDescriptors } from "../core/fairness/descriptors.ts";
import { Refusal } from "../core/values/errors.ts";
import type { Account, Delivery, Millis, NodeId, Outcome } from "../core/model/message.ts";
import { idMaker } from "../core/values/ids.ts";
import { parsedUrl } from "../core/values/url.ts";
import { checkKeys, readyKeys } from "./encryptionKeys.ts";
import type { Settled } from "../core/commands/settle.ts";
import { alarm, elapsed, idleAlarm, sharedEventLoop, systemClock, systemRandom } from "../clock/clock.ts";
import { descriptorLimit } from "../delivery/http/descriptors.ts";
import { createDeliver } from "../delivery/deliver.ts";
import type { DispatcherLog } from "../delivery/dispatcher.ts";
import { Dispatcher } from "../delivery/dispatcher.ts";
import { createEgress } from "../delivery/http/egress.ts";
import { spendingDuty } from "../maintenance/meterSpending.ts";
import { storageDuty } from "../maintenance/storage.ts";
import { trimmingDuty } from "../maintenance/trimHistory.ts";
import { promptRetentionDuty, retentionDuty, Timers } from "../maintenance/scheduler.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import type { OnDamage } from "../store/sqlite/fileCheck.ts";
import { embeddedStore } from "../store/sqlite/embeddedStore.ts";
import type { Store } from "../store/store.ts";

/** A server that is up. `stop` ends it in order and resolves when nothing of it is left. */
export type Served = {
  url: string;
  accountUrl: string | null;
  accounts: readonly Account[];
  created: readonly Account[];
  stop(): Promise<void>;
};

export type Serving = {
  log: Logger;
  firstAccounts: () => readonly NewAccount[];
  /** Is told when the disk has failed: this process can do no more than end, and another one read what is there. */
  onBroken?: (error: Error) => void;
};

/** Puts the parts together. `firstAccounts` are made when the store has none; `created` tells which were. */
export async function serve(settings: Settings, { log, firstAccounts, onBroken = () => undefined }: Serving): Promise<Served> {
  letMessagesDieYoung();
  const newId = idMaker(systemRandom);
  const node = newId("nod", systemClock.now());
  const health: Health = { outdated: false, damage: null };
  const onOutdated = (trouble: string): void => {
    if (!health.outdated) log.fatal(`${trouble}; this server changes nothing any more, and what it had under way goes to the others`);
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
type Opened = { store: Store; keys: KeySource; inFoundation<T>(run: () => Promise<T>): Promise<T>; close(): Promise<void> };

type Opening = {
  node: NodeId;
  log: Logger;
  reclaims?: boolean;
  /** Is told when the tables were replaced by those of another version. */
  onOutdated?: (trouble: string) => void;
  /** Is told when the disk has failed. Nothing is stored from then on. */
  onBroken?: (error: Error) => void;
  /** Hears once of each thing that is found damaged. */
  onDamage?: OnDamage;
};

/** The store the settings name. A data folder is this process's alone, so what a dead one had leased is due at once, unless `reclaims` is false. */
export async function openStore(settings: Settings, how: Opening): Promise<Opened> {
  const opened = settings.databaseUrl === "" ? await openFolder(settings, how) : await openDatabase(settings, how);
  const { log, reclaims = true } = how;
  try {
    await checkKeys(opened.store.read, opened.keys);
    if (opened.keys === null && reclaims) log.warn(inClear);
    return opened;
  } catch (error) {
    await opened.close();
    throw error;
  }
}

async function openDatabase(settings: Settings, { node, log, onOutdated = () => undefined }: Opening): Promise<Opened> {
  const keys = await readyKeys(settings);
  const { inFoundation, postgresStore, slowRoundTrip } = await import("../store/postgres/database.ts");
  const place = { url: settings.databaseUrl, pooling: settings.databasePooling, keys, clock: systemClock };
  const onRoundTrip = sparingly((roundTrip: Millis) => {
    if (roundTrip > slowRoundTrip) log.warn({ roundTrip }, slowDatabase);
    else log.debug({ roundTrip }, "round trip to the database, in milliseconds");
  });
  const onLoss = ({ batches, from, to }: Loss): void =>
    log.fatal({ batches, from: from === null ? null : new Date(from), to: new Date(to) }, lostByDatabase);
  const onClockJump = (jump: Millis): void => log.warn({ jump }, clockJumped);
  const store = await postgresStore({ ...place, node, random: systemRandom, elapsed, onOutdated, onRoundTrip, onLoss, onClockJump });
  return { store, keys, inFoundation: (run) => inFoundation(place, run), close: () => store.close() };
}

/** Calls `run` at most once a minute. */
function sparingly<T>(run: (value: T) => void): (value: T) => void {
  let ranAt = -Infinity;
  return (value) => {
    if (elapsed() - ranAt < 60_000) return;
    ranAt = elapsed();
    run(value);
  };
}

const slowDatabase =
  "the round trip to the database takes longer than 250 ms; this node holds row locks for several round trips, so it slows down the other nodes: run it closer to the database";

const clockJumped =
  "the clock of the database has jumped by more than 5 s (jump, in milliseconds); if it went back, the time of messages continues at nine tenths of its speed until the clock has caught up: keep the clocks of all hosts of the database right (NTP)";

const lostByDatabase =
  "the database has lost what it had acknowledged to this node between these two times, as after a failover to a standby that was behind; the server goes on with what is left: compare what was published in that time with what is there";

const inClear =
  'tokens, passwords and keys are kept in clear in the database; set WAYPOST_KEYS to what "waypost keys new" prints, the same for all nodes, and then "waypost keys reseal"';

async function openFolder(
  settings: Settings,
  { node, log, reclaims = true, onBroken = () => undefined, onDamage = ({ text }) => log.error(text) }: Opening,
): Promise<Opened> {
  const { data } = settings;
  const release = takeDataFolder(data);
  const unsafe = folderWarning(data);
  if (unsafe !== null && reclaims) log.warn(unsafe);
  try {
    const keys = await readyKeys(settings);
    const source = { node, now: () => systemClock.now(), random: systemRandom, newId: idMaker(systemRandom) };
    const store = await embeddedStore({ path: storePath(data), source, keys, pause, elapsed, onBroken, onDamage });
    const close = async (): Promise<void> => {
      await store.close();
      release();
    };
    if (reclaims) await reclaim(store, { node, log });
    return { store, keys, inFoundation: (run) => run(), close };
  } catch (error) {
    release();
    throw error;
  }
}

const reclaimLimit = 1000;

/** A row that the storage refuses must not keep the server from starting. */
async function reclaim(store: Store, { node, log }: { node: NodeId; log: Logger }): Promise<void> {
  try {
    for (let more = true; more;) more = (await store.execute("reclaim", { node, limit: reclaimLimit })).reclaimed === reclaimLimit;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    log.error({ err: error }, "what the last server had under way could not be taken over; it is sent again when its leases run out");
  }
}

const pause = (time: Millis): Promise<void> => systemClock.sleep(systemClock.now() + time, never);
const never = new AbortController().signal;

/** `outdated`: the tables are those of another version. `damage`: what is damaged of the database file, since it was found. */
type Health = { outdated: boolean; damage: string | null };
type Rest = { log: Logger; firstAccounts: () => readonly NewAccount[]; opened: Opened; health: Health };

/**
 * Those there are, and those that are made in a new store, by one of the nodes that start at once. What is left of a deleted account stays for as long
 * as there is no other one (see `core/commands/account.ts`), so a store of which all were deleted is no new one.
 */
async function foundAccounts({ store, inFoundation }: Opened, firstAccounts: Rest["firstAccounts"]) {
  const present = await store.read.accounts();
  if (present.length > 0) return { present, created: [] };
  return inFoundation(async () => {
    const found = await store.read.accounts();
    const made = found.length > 0 ? [] : firstAccounts().map((account) => store.execute("createAccount", account));
    return { present: found, created: await Promise.all(made) };
  });
}

const noAccount = 'all accounts were deleted, so nobody can ask for anything; "waypost account create <name>" makes one';

const otherTables = "the tables are those of another version than this server, which changes nothing any more";

async function serveStore(settings: Settings, { log, firstAccounts, opened, health }: Rest): Promise<Served> {
  const { store, keys, close } = opened;
  const newId = idMaker(systemRandom);
  const clock = systemClock;
  const { present, created } = await foundAccounts(opened, firstAccounts);
  if (created.length === 0 && present.every(isDeleted)) log.warn(noAccount);
  const egress = createEgress({ allow: settings.egressAllow });
  const bounds = boundsOf(settings, log);
  const longWork = sharedEventLoop();
  const out = createDeliver({
    ...{ egress, clock, longWork, region: settings.region, newId: (kind) => newId(kind, clock.now()) },
    limits: limitsOf(settings, bounds),
  });
  const trouble = (what: string, error: unknown): void => log.error({ err: error }, what);
  const hands = { total: bounds.hands, perHost: settings.handsPerHost };
  const dispatcher = new Dispatcher({ store, deliver: out.deliver, clock, hands, log: { attempt: attemptLog(log), trouble } });
  const retention = retentionOf(settings);
  const prices = pricesOf(settings);
  const timers = new Timers({ duties: dutiesOf({ store, clock, retention, prices }), clock, trouble });
  let stopping = false;
  const trustProxy = settings.trustProxy.length > 0 ? settings.trustProxy : false;
  const deskFor = (by: Actor) =>
    deskOf(store, { logRetention: settings.logRetention, by, keys, newSecret: () => newId("sig", clock.now()), url });
  /** With the port that was taken, if any was asked for. */
  const url = (): string => settings.publicUrl || urlOf(settings.host, api.server.address());
  const parts: ApiParts = {
    ...{ store, now: () => clock.now(), longWork },
    retention,
    mostQueues: settings.maxQueues,
    brand: settings.brand,
    region: settings.region,
    corsOrigins: settings.corsOrigin,
    sendsFrom: settings.sendsFrom.map((network) => (network.includes("/") ? network : `${network}/${isIPv6(network) ? 128 : 32}`)),
    prices,
    refusedHost: egress.refusedHost,
    reservedPrices: settings.reservedPrices,
    ...{ trustProxy, fastPath: settings.fastPath },
    publicUrl: settings.publicUrl,
    log: requestLog(log),
    ...{ idleAlarm, alarm },
    unready: () => (stopping ? "the server is stopping" : health.outdated ? otherTables : health.damage),
    health: () => ({ inFlight: dispatcher.inFlight }),
    counted: countedFrom(() => clock.now(), settings.databaseUrl === "" ? undefined : { store, ...clock }, settings.refusedPerSecond),
    ...(settings.operatorPassword !== "" && { operator: { password: settings.operatorPassword, deskFor } }),
  };
  const api = createApi(parts);
  const accountApi = settings.accountPort === null ? null : createApi({ ...parts, servesAccountsOnly: true });
  await api.listen({ port: settings.port, host: settings.host });
  await accountApi?.listen({ port: settings.accountPort ?? 0, host: settings.host }).catch((error: unknown) => giveUp(api, error));
  const desk = settings.databaseUrl === "" ? await openDesk(settings.data, deskFor(commandLine)) : null;
  dispatcher.start();
  timers.start();
  return {
    url: urlOf(settings.host, api.server.address()),
    accountUrl: accountApi && urlOf(settings.host, accountApi.server.address()),
    accounts: [...present, ...created],
    created,
    stop: async () => {
      stopping = true;
      desk?.close();
      await Promise.all([api, ...(accountApi ? [accountApi] : [])].map((one) => closeWithin(one, settings.grace)));
      await dispatcher.stop(settings.grace);
      await timers.stop();
      await out.close();
      await close();
    },
  };
}

/** Returns how many deliveries and sockets the process can have, within its file descriptors. */
function boundsOf({ hands }: Settings, log: Logger): ReturnType<typeof withinDescriptors> {
  const descriptors = descriptorLimit();
  const bounds = withinDescriptors(descriptors, hands);
  if (bounds.hands < hands) log.warn({ descriptors, deliveries: bounds.hands }, fewDescriptors);
  return bounds;
}

const limitsOf = ({ responseLimit, connectTimeout }: Settings, { hands, sockets }: ReturnType<typeof withinDescriptors>) => ({
  ...{ responseBytes: responseLimit, connectTimeout, connectionsPerOrigin: hands, sockets },
});

const fewDescriptors =
  "this process may open too few files for as many deliveries as --hands allows; at most half of its descriptors go to destinations: raise the limit (ulimit -n)";

const retentionOf = ({ logRetention, dlqRetention, auditRetention }: Settings) => ({
  ...{ log: logRetention, deadLetters: dlqRetention, audit: auditRetention },
});

const pricesOf = ({ messagePrice, workflowPrice, bandwidthPrice }: Settings) => ({
  ...{ messages: messagePrice, workflowMessages: workflowPrice, gigabyte: bandwidthPrice },
});

type DutyParts = { store: Store; clock: typeof systemClock } & {
  retention: ReturnType<typeof retentionOf>;
  prices: ReturnType<typeof pricesOf>;
};

/** Everything that the server does at its own pace. */
const dutiesOf = ({ store, clock, retention, prices }: DutyParts) => [
  retentionDuty({ store, clock, retention }),
  promptRetentionDuty({ store, clock, retention }),
  trimmingDuty({ store, clock }),
  spendingDuty({ store, clock, prices }),
  storageDuty({ store, clock }),
];

/** One port is not enough: who comes to the other one in between is sent away. */
async function giveUp(api: FastifyInstance, error: unknown): Promise<never> {
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
export const clientUrl = ({ host, port, publicUrl }: Pick<Settings, "host" | "port" | "publicUrl">): string =>
  publicUrl === "" ? urlOf(host, { port }) : publicUrl;

function urlOf(host: string, address: { port: number } | string | null): string {
  const port = address && typeof address === "object" ? address.port : 0;
  const name = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}

/** One line per attempt: failures always, and as warnings where the message has failed for good; successes if asked for. Never a header or a body. */
function attemptLog(log: Logger): DispatcherLog["attempt"] {
  return ({ message, attempt }: Delivery, { status, error, took }: Outcome, settled: Settled["became"]) => {
    const level = settled === "delivered" ? "debug" : settled === "failed" ? "warn" : "info";
    if (!log.isLevelEnabled(level)) return;
    log[level](
      { messageId: message.id, account: message.account, host: hostAlone(message.url), attempt, status, error, ms: took, settled },
      "attempt",
    );
  };
}

/** One line per request: our own faults always, all others when asked for. */
function requestLog(log: Logger): (status: number, line: () => RequestLine) => void {
  return (status, line) => {
    const level = status < 500 ? "debug" : status === 503 ? "warn" : "error";
    if (log.isLevelEnabled(level)) log[level](line(), "request");
  };
}

/** Paths and queries of destinations can hold secrets. */
const hostAlone = (url: string): string => parsedUrl(url)?.host ?? "";

/**
 * V8 puts all objects of a kind among the old ones once it has seen many of them live for a while. Messages are gone after some
 * milliseconds, and what was put there is found by a full garbage collection only (docs/decisions/0034).
 */
function letMessagesDieYoung(): void {
  setFlagsFromString("--no-allocation-site-pretenuring");
}
