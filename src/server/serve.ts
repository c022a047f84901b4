import { setFlagsFromString } from "node:v8";
import type { Logger } from "pino";
import { createAccessCounters } from "../api/auth/accessCounters.ts";
import { ConsoleSessions } from "../api/auth/consoleSessions.ts";
import { ConsoleFiles } from "../operations/console/files.ts";
import { createNetworkCheck } from "../api/http/address.ts";
import type { OwnHosts } from "../api/auth/ownHosts.ts";
import type { RouteContext } from "../api/route/route.ts";
import { openBuiltSite } from "./site/builtSite.ts";
import { SiteFiles } from "./site/siteFiles.ts";
import type { SitePack } from "./site/sitePack.ts";
import { readBuiltConsole } from "../operations/console/builtFiles.ts";
import type { ApiOptions } from "../api/server/fastify.ts";
import { createApi } from "../api/server/fastify.ts";
import { type Observation, observe, observePublishes } from "../operations/monitoring/observe.ts";
import { createOutboxReader } from "../operations/outbox/figures.ts";
import { assertGivenAccount } from "../settings/givenAccount.ts";
import { formatUrl } from "../settings/addresses.ts";
import { readCapacityLimits, toDeliverLimits } from "../settings/capacityLimits.ts";
import type { ServerConfig } from "../settings/config.ts";
import type { NewAccount } from "../settings/credentials.ts";
import { formatProxy, pickEgressSettings, proxyWarning } from "../settings/egressSettings.ts";
import { closeWithin, listenAll } from "./listening.ts";
import { type ClockCheck, type OpenedStore, openStore } from "./openStore.ts";
import { openServerEgress, type ServerEgress } from "./serverEgress.ts";
import { createAttemptLog, createRepairLog, createRequestLog, logHold } from "./serverLog.ts";
import { commandLine, createServerAdmin, listenForAdmin } from "./accountAdmin.ts";
import type { Actor } from "../engine/core/model/auditEntry.ts";
import { isDeleted } from "../engine/core/commands/account.ts";
import type { Account } from "../engine/core/model/account.ts";
import type { AccountId, Millis, NodeId } from "../engine/core/values/basics.ts";
import { createIdGenerator } from "../engine/core/values/ids.ts";
import {
  alarm as wakeAfter,
  elapsed,
  idleAlarm as wakeWhenIdle,
  createLongWork,
  systemClock,
  systemRandom,
} from "../engine/clock/clock.ts";
import { createDeliver } from "../engine/delivery/deliver.ts";
import { HoldWatch } from "../engine/delivery/holdWatch.ts";
import type { DispatcherLog } from "../engine/delivery/dispatcher.ts";
import { Dispatcher } from "../engine/delivery/dispatcher.ts";
import { routes } from "../operations/routes.ts";
import { createSessionRoutes } from "../operations/console/routes.ts";
import type { ConditionSources } from "./conditions.ts";
import { createConditions } from "./conditions.ts";
import { served } from "../operations/served.ts";
import { readReplicaHealth } from "../operations/backup/replica/settings.ts";
import { createTasks } from "../engine/upkeep/tasks.ts";
import { MaintenanceScheduler } from "../engine/upkeep/scheduler.ts";
import type { OnDamage } from "../engine/store/sqlite/fileCheck.ts";
import type { Store } from "../engine/store/store.ts";
import { toApiSettings, toOwnHosts, toPrices, toRetention } from "../settings/apiSettings.ts";
import { version } from "../settings/version.ts";

/** A running server. `stop` shuts it down in order and resolves when everything has ended. */
export type RunningServer = {
  url: string;
  accountUrl: string | null;
  /** Where the metrics are without a token, or null. */
  metricsUrl: string | null;
  accounts: readonly Account[];
  created: readonly Account[];
  /**
   * Returns where the console is, or null if it is turned off or not built. With an account, the address has
   * a code that signs in once, within ten minutes, from this machine.
   */
  consoleUrl(account?: AccountId): string | null;
  /** Whether the console is turned on and has not been built. */
  lacksConsole: boolean;
  stop(): Promise<void>;
};

/** The options of `serve`, besides the settings. */
export type ServeOptions = {
  log: Logger;
  firstAccounts: () => readonly NewAccount[];
  /** Whether the credentials are public, so that pages of other sites must be refused. */
  isDevelopment?: boolean;
  /** Whether to begin a hold: deliveries wait until the operator ends it, on all nodes. */
  hold?: boolean;
  /** Called when the disk has failed. The process can only exit: another process must read the data again. */
  onBroken?: (error: Error) => void;
  clockCheck?: ClockCheck;
  /** Whether a store is served from which everything was moved. */
  servesMoved?: boolean;
};

/** Starts a server. If the store has no accounts, `firstAccounts` are created; `created` lists them. */
export async function serve(
  settings: ServerConfig,
  { log, firstAccounts, isDevelopment = false, hold = false, ...opening }: ServeOptions,
): Promise<RunningServer> {
  disablePretenuring();
  const egress = openServerEgress(settings, log);
  const newId = createIdGenerator(systemRandom);
  const node = newId("nod", systemClock.now());
  const health: Health = { isStopping: false, outdated: false, damage: null };
  const onOutdated = (message: string): void => {
    if (!health.outdated)
      log.fatal(`${message}; this node stops writing, and its in-flight messages move to other nodes`);
    health.outdated = true;
  };
  const onDamage: OnDamage = ({ isFile, text }) => {
    log.error(text);
    if (isFile) health.damage = text;
  };
  const opened = await openStore(settings, { node, log, onOutdated, onDamage, ...opening });
  try {
    if (hold) await opened.store.hold.set(true);
    const hosts = toOwnHosts(settings, isDevelopment);
    const served = await serveStore(settings, { log, firstAccounts, opened, health, node, egress, hosts });
    const proxy = formatProxy(settings);
    if (proxy !== null) log.warn({ proxy }, proxyWarning);
    if (isDevelopment && settings.corsOrigin.includes("*")) log.warn(anyPageWarning);
    const kind = settings.databaseUrl === "" ? "sqlite" : "postgres";
    log.info({ version, store: kind, node, recovered: opened.recovered }, "started");
    letYoungGenerationGrow();
    return served;
  } catch (error) {
    await opened.close();
    throw error;
  }
}

const anyPageWarning =
  "--cors-origin *: the token of a development server is public, so every web page that a browser of " +
  "this machine opens can publish, read messages and rotate keys; name the origins that need it";

/**
 * `outdated`: another version has replaced the tables. `damage`: what is damaged in the database file, or
 * null.
 */
type Health = { isStopping: boolean; outdated: boolean; damage: string | null };

/** Returns why a server takes no requests, apart from its store, or null. */
const findNotReadyReason = ({ isStopping, outdated, damage }: Health): string | null =>
  isStopping ? "the server is stopping" : outdated ? otherTables : damage;

type ServeStoreOptions = {
  log: Logger;
  firstAccounts: () => readonly NewAccount[];
  opened: OpenedStore;
  health: Health;
  node: NodeId;
  egress: ServerEgress;
  hosts: OwnHosts;
};

/**
 * Returns the existing accounts, and those that this node has created. If several nodes start with a new
 * store, only the first one creates accounts. The last deleted account keeps its row (see
 * `engine/core/commands/account.ts`), so a store whose accounts were all deleted is not new.
 */
async function findOrCreateAccounts(
  { store, asFirstNode }: OpenedStore,
  firstAccounts: ServeStoreOptions["firstAccounts"],
) {
  const present = await store.read.accounts();
  if (present.length > 0) return { present, created: [] };
  return asFirstNode(async () => {
    const existing = await store.read.accounts();
    const creating =
      existing.length > 0 ? [] : firstAccounts().map((account) => store.execute("createAccount", account));
    return { present: existing, created: await Promise.all(creating) };
  });
}

/** Returns the accounts, as `findOrCreateAccounts` does. Refuses settings with other credentials. */
async function openAccounts(
  settings: ServerConfig,
  { opened, firstAccounts, log }: Pick<ServeStoreOptions, "opened" | "firstAccounts" | "log">,
) {
  const { present, created } = await findOrCreateAccounts(opened, firstAccounts);
  assertGivenAccount(settings, [...present, ...created]);
  if (created.length === 0 && present.every(isDeleted)) log.warn(noAccountWarning);
  return { present, created };
}

const noAccountWarning =
  'all accounts were deleted, so every request is refused; "waypost account create <name>" creates one';

const otherTables = "another version has replaced the tables, so this node has stopped writing";

async function serveStore(
  settings: ServerConfig,
  { log, firstAccounts, opened, health, node, egress, hosts }: ServeStoreOptions,
): Promise<RunningServer> {
  const { store, keys, close } = opened;
  const newId = createIdGenerator(systemRandom);
  const { present, created } = await openAccounts(settings, { opened, firstAccounts, log });
  const { lostBatches } = opened;
  const notReadyReason = (): string | null => findNotReadyReason(health);
  const observation = observe(settings, {
    ...{ store, node, log, replica: opened.readReplica, lostBatches, notReadyReason },
    inFlight: () => work.dispatcher.inFlight,
    readOutboxes: createOutboxReader(store, { isShared: settings.databaseUrl !== "" }),
    isOnHold: () => work.holdWatch.isOnHold,
  });
  const work = createWork(settings, {
    ...{ store, log, newId, node, egress, observation, notReadyReason, lostBatches },
  });
  const createAdmin = (actor: Actor) =>
    createServerAdmin(store, {
      ...{ logRetention: settings.logRetention, actor, keys, url },
      newSecret: () => newId("sig", systemClock.now()),
      egress: pickEgressSettings(settings),
    });
  /** Uses the port that was opened, which differs from the setting if that is 0. */
  const url = (): string => settings.publicUrl || formatUrl(settings.host, api.server.address());
  const consoleParts = settings.console ? createConsoleParts(settings, { store, log, hosts }) : null;
  const apiParts: ApiOptions = {
    ...toApiSettings(settings),
    ...createApiParts(settings, { store, work, log, observation, hosts }),
    ...consoleParts,
    builtFiles: listBuiltFiles(consoleParts?.consoleFiles, log),
    thisNode: { id: node, startedAt: systemClock.now() },
    notReadyReason,
    ...(settings.operatorPassword !== "" && {
      operator: { password: settings.operatorPassword, accountAdminFor: createAdmin },
    }),
  };
  const api = createApi(apiParts);
  const accountApi =
    settings.accountPort === null ? null : createApi({ ...apiParts, servesAccountsOnly: true });
  const apis = [api, ...(accountApi ? [accountApi] : [])];
  const metricsUrl = await listenAll(settings, apis, { observation, holdWatch: work.holdWatch });
  const adminServer =
    settings.databaseUrl === "" ? await listenForAdmin(settings.data, createAdmin(commandLine)) : null;
  work.dispatcher.start();
  work.scheduler.start();
  for (const { worker } of work.operations) worker?.start();
  return {
    url: formatUrl(settings.host, api.server.address()),
    accountUrl: accountApi && formatUrl(settings.host, accountApi.server.address()),
    metricsUrl,
    accounts: [...present, ...created],
    created,
    consoleUrl: (account) => {
      if (!consoleParts?.consoleFiles.isBuilt) return null;
      const code = account === undefined ? "" : `#code=${consoleParts.sessions.createCode(account)}`;
      return `${url()}/console/${code}`;
    },
    lacksConsole: consoleParts?.consoleFiles.isBuilt === false,
    stop: async () => {
      health.isStopping = true;
      adminServer?.close();
      await closeAndStop(work, apis, settings.grace);
      await observation.stop();
      await close();
    },
  };
}

/** The parts of a server that send messages and work in the background. */
type Work = ReturnType<typeof createWork>;

type WorkParts = {
  store: Store;
  log: Logger;
  newId: ReturnType<typeof createIdGenerator>;
  node: NodeId;
  egress: ServerEgress;
  observation: Observation;
} & Pick<ConditionSources, "notReadyReason" | "lostBatches">;

function createWork(settings: ServerConfig, parts: WorkParts) {
  const { store, log, newId, node, egress, observation, notReadyReason, lostBatches } = parts;
  const clock = systemClock;
  const capacityLimits = readCapacityLimits(settings, log);
  const longWork = createLongWork();
  const isShared = settings.databaseUrl !== "";
  const deliverer = createDeliver({
    ...{ egress, clock, longWork },
    region: settings.region,
    newId: (kind) => newId(kind, clock.now()),
    limits: toDeliverLimits(settings, capacityLimits),
  });
  const logFailure = (message: string, error: unknown): void => log.error({ err: error }, message);
  const capacity = { total: capacityLimits.capacity, perHost: settings.maxDeliveriesPerHost };
  const logAttempt = createAttemptLog(log);
  const deliveryLog: DispatcherLog = {
    attempt: (delivery, outcome, settled) => {
      observation.addAttempt(delivery, outcome, settled);
      logAttempt(delivery, outcome, settled);
    },
    failure: logFailure,
  };
  const dispatcher = new Dispatcher({
    ...{ store, deliver: deliverer.deliver, clock, capacity, log: deliveryLog },
    pulling: { region: settings.region, newId: (kind) => newId(kind, clock.now()), isShared },
  });
  const retention = toRetention(settings);
  const prices = toPrices(settings);
  const stopping = new AbortController();
  const disk = async () => (await toApiSettings(settings).disk?.()) ?? null;
  const isOnHold = (): boolean => holdWatch.isOnHold;
  const listConditions = createConditions({
    ...{ store, node, now: () => clock.now(), notReadyReason, isOnHold, lostBatches, disk },
    ...{ replica: observation.replica, deliveries: dispatcher.deliveries, operations: served },
    listRefusedHosts: egress.listRefusedHosts,
  });
  observation.watchConditions(listConditions);
  const operations = served.flatMap(
    ({ run }) =>
      run?.({
        ...{ store, clock, node, isShared, logFailure, deliver: deliverer.deliver, stop: stopping.signal },
        ...{ retention, sender: dispatcher, onRepair: createRepairLog(log), repairs: settings.selfCheck },
        onRemovedEarly: (rows) => void (observation.metrics.removedEarly += rows),
        ...{ isOnHold, listConditions, disk, authorities: egress.authorities },
        connect: (target) => egress.open({ ...target, timeout: settings.connectTimeout }),
        publishing: { maxQueues: settings.maxQueues, maxBody: settings.maxBody, brand: settings.brand },
      }) ?? [],
  );
  const scheduler = new MaintenanceScheduler({
    tasks: [
      ...createTasks({ store, clock, retention, prices }),
      ...operations.flatMap(({ tasks = [] }) => tasks),
    ],
    clock,
    logFailure,
  });
  const holdWatch = new HoldWatch({
    store,
    clock,
    isShared,
    onChange: (isOnHold) => {
      dispatcher.setHold(isOnHold);
      logHold(log, isOnHold);
    },
    logFailure,
  });
  const closeConnections = (): Promise<void> => deliverer.close();
  const background = { dispatcher, scheduler, holdWatch, operations, stopping };
  return { egress, longWork, listConditions, closeConnections, ...background };
}

type ApiServices = { store: Store; work: Work; log: Logger; observation: Observation; hosts: OwnHosts };

/** Returns what the API needs besides settings. */
const createApiParts = (settings: ServerConfig, { store, work, log, observation, hosts }: ApiServices) =>
  ({
    routes,
    hosts,
    store: observePublishes(store, observation),
    metrics: observation.read,
    count: observation.metrics.countRequest.bind(observation.metrics),
    now: () => systemClock.now(),
    longWork: work.longWork,
    ...(Object.assign({}, ...work.operations.map(({ context }) => context)) as Partial<RouteContext>),
    pullers: work.dispatcher.pullers,
    findHostRefusal: work.egress.findHostRefusal,
    onRefusedHost: work.egress.onRefusedHost,
    log: createRequestLog(log),
    wakeWhenIdle,
    wakeAfter,
    elapsed,
    health: () => ({
      inFlight: work.dispatcher.inFlight,
      ...(work.holdWatch.isOnHold && { held: true }),
      ...readReplicaHealth(observation.replica()),
      ...(store.upkeep.disk?.isShort() && { diskShort: true }),
      ...(store.upkeep.disk?.isLow() && { diskLow: true }),
    }),
    isOnHold: () => work.holdWatch.isOnHold,
    listConditions: work.listConditions,
    counted: createAccessCounters(
      () => systemClock.now(),
      settings.databaseUrl === "" ? undefined : { store, ...systemClock },
      settings.refusedPerSecond,
    ),
  }) satisfies Partial<ApiOptions>;

/** Returns what the API needs to serve the console. */
const createConsoleParts = (
  { operatorPassword, trustProxy, trustUserHeader }: ServerConfig,
  { store, log, hosts }: { store: Store; log: Logger; hosts: OwnHosts },
) => ({
  sessions: new ConsoleSessions({
    store,
    now: () => systemClock.now(),
    operatorPassword: operatorPassword === "" ? null : operatorPassword,
    hosts,
  }),
  createConsoleRoutes: createSessionRoutes,
  consoleFiles: new ConsoleFiles(readBuiltConsole(), createRequestLog(log)),
  ...(trustUserHeader !== "" && {
    userHeader: { name: trustUserHeader, isTrusted: createNetworkCheck(trustProxy) },
  }),
});

/** Opens the documentation. A server without it does all of its work. */
function openSite(log: Logger): SitePack | null {
  try {
    return openBuiltSite();
  } catch (error) {
    log.warn({ err: error }, "the documentation cannot be read, so /docs is off; build or install it again");
    return null;
  }
}

/** Returns what answers requests for the files of the console, if it is on, and for the documentation. */
const listBuiltFiles = (consoleFiles: ConsoleFiles | undefined, log: Logger) => [
  ...(consoleFiles ? [consoleFiles] : []),
  new SiteFiles(openSite(log), createRequestLog(log)),
];

/** Ends calls of runs, then closes the APIs, and then stops all other work. */
async function closeAndStop(
  work: Work,
  apis: readonly ReturnType<typeof createApi>[],
  grace: Millis,
): Promise<void> {
  const begin = elapsed();
  await work.dispatcher.endCallsOfRuns(grace);
  const left = Math.max(0, grace - (elapsed() - begin));
  await Promise.all(apis.map((api) => closeWithin(api, grace)));
  await stopWork(work, left);
}

async function stopWork(
  { holdWatch, dispatcher, operations, scheduler, closeConnections, stopping }: Work,
  grace: Millis,
): Promise<void> {
  await holdWatch.stop();
  await dispatcher.stop(grace);
  for (const { worker } of operations) await worker?.stop();
  stopping.abort();
  await scheduler.stop();
  await closeConnections();
}

/**
 * Turns off a V8 optimization that creates objects of a kind directly in the old generation if many earlier
 * ones lived for a while. Messages live for milliseconds, but only a full garbage collection frees objects
 * there (docs/decisions/0034).
 */
function disablePretenuring(): void {
  setFlagsFromString("--no-allocation-site-pretenuring");
}

/** Undoes what `launch/start.js` sets while the server is loaded. The number is the default of V8. */
function letYoungGenerationGrow(): void {
  setFlagsFromString("--semi-space-growth-factor=2");
}
