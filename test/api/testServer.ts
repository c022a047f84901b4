import { hash } from "node:crypto";
import { type OutgoingHttpHeaders, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import type { FastifyInstance, InjectOptions } from "fastify";
import { afterAll, beforeAll, beforeEach, onTestFinished } from "vitest";
import { conditionWindow } from "../../src/engine/core/explain/condition.ts";
import type { ConditionFacts, ServerFacts } from "../../src/engine/core/explain/conditions.ts";
import { RefusedHosts } from "../../src/engine/core/node/refusedHosts.ts";
import { describeRefusal } from "../../src/api/publishing/refusedHosts.ts";
import type { RouteContext } from "../../src/api/route/route.ts";
import type { RequestLine } from "../../src/api/route/requestLog.ts";
import type { AccessCounters } from "../../src/api/auth/accessCounters.ts";
import type { OwnHosts } from "../../src/api/auth/ownHosts.ts";
import { ConsoleSessions } from "../../src/api/auth/consoleSessions.ts";
import type { BuiltConsole } from "../../src/operations/console/files.ts";
import { ConsoleFiles } from "../../src/operations/console/files.ts";
import { routes } from "../../src/operations/routes.ts";
import { createSessionRoutes } from "../../src/operations/console/routes.ts";
import { createApi } from "../../src/api/server/fastify.ts";
import { SiteFiles } from "../../src/server/site/siteFiles.ts";
import type { SitePack } from "../../src/server/site/sitePack.ts";
import { served } from "../../src/operations/served.ts";
import { createConditions } from "../../src/server/conditions.ts";
import { createServerAdmin } from "../../src/server/accountAdmin.ts";
import type { LongWork } from "../../src/engine/core/node/longWork.ts";
import { readConfig } from "../../src/settings/config.ts";
import {
  type EgressSettings,
  pickEgressSettings,
  toReportedEgress,
} from "../../src/settings/egressSettings.ts";
import { readText } from "./readText.ts";
import {
  alarm,
  createLongWork,
  elapsed,
  idleAlarm as wakeWhenIdle,
  systemClock,
} from "../../src/engine/clock/clock.ts";
import { laneName } from "../../src/engine/core/admission/capacity.ts";
import { parseHost } from "../../src/engine/core/values/url.ts";
import { Pullers } from "../../src/engine/delivery/pullers.ts";
import type { Prices } from "../../src/engine/core/accounts/statistics.ts";
import type { Account } from "../../src/engine/core/model/account.ts";
import type { PlanName } from "../../src/engine/core/model/accountTerms.ts";
import type { Outcome } from "../../src/engine/core/model/attempt.ts";
import type { Delivery } from "../../src/engine/core/model/delivery.ts";
import { type Brand, type Millis, noBytes } from "../../src/engine/core/values/basics.ts";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import type { FindHostRefusal } from "../../src/engine/core/values/refusedHost.ts";
import { Memory, memoryStore } from "../model/memoryStore.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { withSentBody } from "../sentBody.ts";

/** The main token of the default account. */
export const token = "eyJVc2VySUQiOiJ1c2VyIiwiUGFzc3dvcmQiOiJwYXNzIn0=";
/** The token of the second account of tests. */
export const otherToken = "b3RoZXI=";
/** The password of the operator. */
export const operatorPassword = "operator-password";
/** The time at which the clock of a test server starts. */
export const testTime = 1_800_000_000_000;

/** `body` is the parsed JSON. Each test states what it expects of it. */
// oxlint-disable-next-line typescript/no-explicit-any -- the shape is what is tested
export type Reply = { status: number; body: any; headers: Record<string, unknown> };

/**
 * The path that answers plain publishes, for files that run twice (see `test/api/twice.ts`). With "on", `ask`
 * publishes over a connection to the fast path. With "off", there is no fast path. If it is not set, `ask`
 * publishes to the framework, and tests that open connections use the fast path.
 */
const fastPath = process.env["FAST_PATH"];
/** Requests that the fast path answers, unless something about them is unusual. */
const onFastPath =
  /^(POST \/v2\/(publish|batch|workflows\/runs\/[^/]+\/run-on)|DELETE \/v2\/workflows\/runs\/)/i;

/** A server on a store in memory, whose clock the test sets. */
export type TestServer = {
  api: FastifyInstance;
  sessions: ConsoleSessions;
  store: Store;
  /** The rows of the store. */
  memory: Memory;
  lines: RequestLine[];
  deliveries: Delivery[];
  pullers: Pullers;
  clock: { now: Millis };
  /** The facts of this node that conditions depend on. A test changes them. */
  seen: {
    disk: ServerFacts["disk"];
    isHeld: boolean;
    failing: ConditionFacts["failing"];
    inFlight: ConditionFacts["inFlight"];
  };
  listConditions: RouteContext["listConditions"];
  stop(): void;
  /**
   * Sends a request with the token of the first account. The value of a header may be a list, as over the
   * wire.
   */
  ask(
    method: string,
    url: string,
    more?: { headers?: Record<string, string>; body?: string | Buffer; token?: string | null },
  ): Promise<Reply>;
  /** Returns the only message that was delivered since the last call. */
  delivery(): Delivery;
  settle(delivery: Delivery, outcome: Partial<Outcome>): Promise<void>;
};

/**
 * Creates a server with a store in memory and a clock that the test moves. Due messages are delivered into a
 * list.
 */
export async function createTestServer(options: Options = {}): Promise<TestServer> {
  const { api, ...server } = await openServer(options);
  onTestFinished(() => api.close());
  return { api, ...server };
}

/**
 * Returns a server that the tests of a file or of a group share, because making one takes longer than most
 * requests. For tests that change nothing, or nothing that another of them reads. `lines` has those of the
 * present test.
 */
export function shareTestServer(options: Options = {}): () => TestServer {
  let shared: TestServer | null = null;
  const server = (): TestServer => {
    if (!shared) throw new Error("the server is made before the first test");
    return shared;
  };
  beforeAll(async () => {
    shared = await openServer(options);
  });
  beforeEach(() => void server().lines.splice(0));
  afterAll(() => shared?.api.close());
  return server;
}

type Options = {
  trustProxy?: boolean | string[];
  requestBodyBytes?: number;
  longWork?: LongWork;
  alarm?: typeof alarm;
  elapsed?: typeof elapsed;
  longResponseBytes?: number;
  maxQueues?: number;
  maxBody?: number;
  brand?: Brand;
  sendsFrom?: string[];
  prices?: Prices;
  refusedHost?: FindHostRefusal;
  egress?: EgressSettings;
  region?: string;
  corsOrigins?: string[];
  reservedPrices?: Partial<Record<PlanName, number>>;
  hasOperator?: boolean;
  servesAccountsOnly?: boolean;
  /** The hosts of the server. Default: those of a server that is not for development. */
  hosts?: Partial<OwnHosts>;
  counted?: AccessCounters;
  fastPath?: boolean;
  /** Turns the console on, with these files. */
  console?: { built?: BuiltConsole; publicUrl?: string; trustsUserHeader?: boolean };
  /** Serves this documentation. Null: it is not built. */
  site?: SitePack | null;
  wrap?(store: Store): Store;
  isDiskLow?(): boolean;
  /** Returns services of operations for their routes. */
  extend?(parts: { store: Store; now(): Millis }): Partial<RouteContext>;
};

async function openServer(options: Options): Promise<TestServer> {
  const clock = { now: testTime };
  let seed = 1;
  const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const memory = new Memory();
  const store = memoryStore(
    {
      node: "nod_1",
      now: () => clock.now,
      random,
      newId: createIdGenerator(random),
      ...(options.isDiskLow && { isDiskLow: options.isDiskLow }),
      // A test lowers the limit for what is accepted later by changing its options.
      get maxBody() {
        return options.maxBody;
      },
    },
    memory,
  );
  const deliveries: Delivery[] = [];
  const pullers = new Pullers({
    ...{ store, clock: { ...systemClock, now: () => clock.now }, isShared: false, region: "local" },
    newId: (kind) => createIdGenerator(random)(kind, clock.now),
  });
  /** Gives a delivery to a pull, and stores the result. */
  const offer = async (delivery: Delivery): Promise<void> => {
    const { account, url } = delivery.message;
    const call = pullers.take(delivery, laneName(account, parseHost(url)));
    await store.execute("settle", await call.outcome);
  };
  store.attach({
    readCapacity: () => ({
      ...(pullers.room && { pulls: pullers.room }),
      free: 100_000,
      perHost: 100_000,
      backlog: false,
      runningByLane: new Map(),
      bytes: { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} },
    }),
    deliver: (delivery) =>
      void (delivery.pullKey === undefined ? deliveries.push(withSentBody(delivery)) : offer(delivery)),
    abort: () => undefined,
    renewLeases: () => undefined,
    settled: () => undefined,
    fault: (what) => {
      throw new Error(what);
    },
  });
  await store.execute("createAccount", makeAccount("acc_1", token));
  await store.execute("createAccount", makeAccount("acc_2", otherToken));
  const lines: RequestLine[] = [];
  const newId = createIdGenerator(random);
  let stopping = false;
  const hosts = {
    publicUrl: options.console?.publicUrl ?? "",
    listensOn: "queue.internal",
    allowed: [],
    isDevelopment: false,
    ...options.hosts,
  };
  const sessions = new ConsoleSessions({
    store: options.wrap?.(store) ?? store,
    now: () => clock.now,
    operatorPassword: options.hasOperator === false ? null : operatorPassword,
    hosts,
  });
  const logLine = (_status: number, line: () => RequestLine): void => void lines.push(line());
  const seen: TestServer["seen"] = { disk: null, isHeld: false, failing: [], inFlight: [] };
  const refusedHosts = new RefusedHosts();
  const listConditions = createConditions({
    store: options.wrap?.(store) ?? store,
    node: "nod_1",
    now: () => clock.now,
    notReadyReason: () => (stopping ? "the server is stopping" : null),
    isOnHold: () => seen.isHeld,
    lostBatches: () => 0,
    replica: () => null,
    disk: async () => seen.disk,
    deliveries: { listFailingHosts: () => seen.failing, listInFlight: () => seen.inFlight },
    operations: served,
    listRefusedHosts: (account, now) =>
      refusedHosts
        .list(account, {
          after: now - conditionWindow,
          find: (host) => options.refusedHost?.(host) ?? null,
        })
        .map(({ host, since, refused }) => ({ host, since, why: describeRefusal(refused) })),
  });
  const api = createApi({
    routes,
    store: options.wrap?.(store) ?? store,
    ...(options.console && {
      sessions,
      createConsoleRoutes: createSessionRoutes,
      builtFiles: [new ConsoleFiles(options.console.built ?? null, logLine)],
    }),
    ...(options.site !== undefined && { builtFiles: [new SiteFiles(options.site, logLine)] }),
    ...(options.console?.publicUrl !== undefined && { publicUrl: options.console.publicUrl }),
    ...(options.console?.trustsUserHeader && {
      userHeader: { name: "X-User", isTrusted: (address) => address === "127.0.0.1" },
    }),
    hosts,
    now: () => clock.now,
    retention: { log: 86_400_000, deadLetters: 86_400_000 },
    trustProxy: options.trustProxy ?? false,
    fastPath: options.fastPath ?? fastPath !== "off",
    wakeWhenIdle,
    pullers,
    wakeAfter: options.alarm ?? alarm,
    elapsed: options.elapsed ?? elapsed,
    longWork: options.longWork ?? createLongWork(),
    ...(options.requestBodyBytes === undefined ? {} : { requestBodyBytes: options.requestBodyBytes }),
    ...(options.longResponseBytes === undefined ? {} : { longResponseBytes: options.longResponseBytes }),
    ...(options.brand === undefined ? {} : { brand: options.brand }),
    ...(options.maxBody === undefined ? {} : { maxBody: options.maxBody }),
    ...(options.maxQueues === undefined ? {} : { maxQueues: options.maxQueues }),
    ...(options.hasOperator === false
      ? {}
      : {
          operator: {
            password: operatorPassword,
            accountAdminFor: (actor) =>
              createServerAdmin(options.wrap?.(store) ?? store, {
                logRetention: 86_400_000,
                actor,
                keys: null,
                newSecret: () => newId("sig", clock.now),
                url: () => "http://127.0.0.1:8080",
                egress: pickEgressSettings(readConfig({}, {})),
              }),
          },
        }),
    ...(options.servesAccountsOnly && { servesAccountsOnly: true }),
    ...(options.counted && { counted: options.counted }),
    ...(options.sendsFrom === undefined ? {} : { sendsFrom: options.sendsFrom }),
    ...(options.corsOrigins === undefined ? {} : { corsOrigins: options.corsOrigins }),
    ...(options.region === undefined ? {} : { region: options.region }),
    ...(options.reservedPrices === undefined ? {} : { reservedPrices: options.reservedPrices }),
    ...(options.prices === undefined ? {} : { prices: options.prices }),
    ...(options.refusedHost && { findHostRefusal: options.refusedHost }),
    onRefusedHost: (account, host) => refusedHosts.note(account, host, clock.now),
    log: (_status, line) => void lines.push(line()),
    notReadyReason: () => (stopping ? "the server is stopping" : null),
    listConditions,
    egress: toReportedEgress(options.egress ?? readConfig({}, {})),
    thisNode: { id: "nod_1", startedAt: testTime },
    version: "1.2.3",
    health: () => ({ pending: deliveries.length }),
    metrics: () => ({ contentType: "text/plain", text: "# EOF\n" }),
    ...options.extend?.({ store, now: () => clock.now }),
  });
  return {
    api,
    sessions,
    store,
    memory,
    lines,
    deliveries,
    pullers,
    clock,
    seen,
    listConditions,
    stop: () => void (stopping = true),
    ask: (method, url, more = {}) =>
      fastPath === "on" && onFastPath.test(`${method} ${url}`)
        ? askOverWire(api, { method, url, ...more })
        : ask(api, { method, url, ...more }),
    delivery: () => {
      const [only, ...others] = deliveries.splice(0);
      if (!only || others.length > 0)
        throw new Error(`${others.length + (only ? 1 : 0)} deliveries instead of one`);
      return only;
    },
    settle: async ({ message, attempt }, outcome) => {
      const { id: messageId, account } = message;
      const none = { status: null, headers: [], body: noBytes, error: null, took: 1 };
      await store.execute("settle", {
        account,
        messageId,
        host: new URL(message.url).host,
        attempt,
        ...none,
        ...outcome,
      });
    },
  };
}

function makeAccount(id: string, token: string): Omit<Account, "createdAt"> {
  return {
    id,
    name: id,
    password: "pass",
    token,
    tokenHash: hash("sha256", token, "hex"),
    signingKeys: { current: "sig_1", next: "sig_2" },
  };
}

type Asked = { method: string; url: string } & NonNullable<Parameters<TestServer["ask"]>[2]>;

/** Like `ask`, over its own connection. */
async function askOverWire(
  api: FastifyInstance,
  { method, url, headers = {}, body = "", token: given = token }: Asked,
) {
  const port = await portOf(api);
  const authorization = given === null ? {} : { authorization: `Bearer ${given}` };
  const lowered = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
  const length = { "content-length": String(Buffer.byteLength(body)) };
  return new Promise<Reply>((resolve, reject) => {
    const described = {
      host: "127.0.0.1",
      port,
      agent: false,
      method,
      path: url,
      headers: { ...authorization, ...lowered, ...length },
    };
    const request = httpRequest(described, (response) => {
      readText(response, response.headers).then(
        (text) =>
          resolve({
            status: response.statusCode ?? 0,
            body: readReply(text, response.headers),
            headers: response.headers,
          }),
        reject,
      );
    });
    request.on("error", reject);
    // If the body is a string, Node encodes the headers in the same encoding.
    request.end(Buffer.from(body));
  });
}

/** Returns a body as JSON, or as text if it is something else, or null if it is empty. */
const readReply = (
  text: string,
  { "content-type": type }: OutgoingHttpHeaders,
): ReturnType<typeof JSON.parse> =>
  text === "" ? null : /json/.test(String(type)) ? JSON.parse(text) : text;

/** Makes a server listen on loopback, if it does not yet. Returns the port. */
export async function portOf(api: FastifyInstance): Promise<number> {
  if (!api.server.listening) await api.listen({ port: 0, host: "127.0.0.1" });
  return (api.server.address() as AddressInfo).port;
}

async function ask(
  api: FastifyInstance,
  { method, url, headers = {}, body, token: given = token }: Asked,
): Promise<Reply> {
  const authorization = given === null ? {} : { authorization: `Bearer ${given}` };
  const request: InjectOptions = {
    method,
    url,
    headers: { ...authorization, ...headers },
    ...(body === undefined ? {} : { payload: body }),
  };
  const response = await api.inject({ ...request, payloadAsStream: true });
  return {
    status: response.statusCode,
    body: readReply(await readText(response.stream(), response.headers), response.headers),
    headers: response.headers,
  };
}
