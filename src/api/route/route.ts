import { z } from "zod";
import type { ShownAttempt } from "../auth/shownAttempt.ts";
import type { BodyLimit } from "../../engine/core/accounts/plans.ts";
import type { Prices } from "../../engine/core/accounts/statistics.ts";
import type { AccountChange } from "../../engine/core/model/account.ts";
import type { Retention } from "../../engine/core/accounts/retention.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { PlanName } from "../../engine/core/model/accountTerms.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { Verb } from "../../engine/core/model/rights.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { Condition } from "../../engine/core/explain/condition.ts";
import type { LongWork } from "../../engine/core/node/longWork.ts";
import type { Filter } from "../../engine/core/search/filter.ts";
import type { AccountId, Brand, Bytes, Millis, NodeId } from "../../engine/core/values/basics.ts";
import { type ErrorCode, Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { FindHostRefusal, RefusedHost } from "../../engine/core/values/refusedHost.ts";
import type { Pullers } from "../../engine/delivery/pullers.ts";
import type { Store } from "../../engine/store/store.ts";
import type { ReportedEgress } from "../fields/egress.ts";
import type { Proof } from "../auth/bearer.ts";
import type { Access } from "../auth/pageRule.ts";
import type { BrowserRequest } from "../auth/consoleRequest.ts";
import { readJson } from "../http/json.ts";
import type { LineStream } from "../http/lineStream.ts";
import { mergeParameters, readFields } from "../http/parameters.ts";
import type { Deprecation } from "../http/responseHeaders.ts";
import type { Query, Target } from "../http/target.ts";
import type { WorkflowSettingName } from "../settings/workflow.ts";
import { addWarning } from "../http/warnings.ts";
import type { UnpublishedCounter } from "./unpublishedCounter.ts";

/** The operator's actions on accounts. Deleted accounts count as unknown. All methods throw `Refusal`. */
export type AccountAdmin = {
  accounts(): Promise<readonly Account[]>;
  /** Creates an account with new credentials. */
  create(newAccount: { name: string; change: AccountChange }): Promise<Account>;
  change(account: AccountId, change: AccountChange): Promise<Account>;
  delete(account: AccountId): Promise<Account>;
  /** Ends the hold of all deliveries. Reports whether there was one. */
  unhold(): Promise<{ wasHeld: boolean }>;
};

/** The services and options that routes use. An operation adds what its routes need. */
export interface RouteContext extends UnpublishedCounter {
  store: Store;
  now(): Millis;
  /** A monotonic clock. */
  elapsed(): Millis;
  /** Runs slices of work that would otherwise delay other requests. */
  longWork: LongWork;
  /** Calls `wake` once after a time, unless the returned function is called before. */
  wakeAfter(after: Millis, wake: () => void): () => void;
  /** The clients that wait to pull messages. Default: none can. */
  pullers?: Pick<Pullers, "pull" | "look">;
  /** The tails of the log that are open on this port. */
  logTails: { open(account: AccountId, filter: Filter): Promise<LineStream> };
  retention: Retention;
  /** The number of queues that an account may have. Default: see `limits`. */
  maxQueues?: number;
  /** See `BodyLimit`. */
  maxBody?: number;
  /** The bytes of a response that a dead letter keeps. Default: `maxBody`. */
  responseBytes?: number;
  /** The brand of messages whose publish request shows none. Default: the neutral brand. */
  brand?: Brand;
  /** The region of this server and the networks that its deliveries come from. The API reports them. */
  region?: string;
  sendsFrom?: readonly string[];
  /** The prices of usage in statistics, in dollars. Default: usage costs nothing. */
  prices?: Prices;
  /** Prices of plans in dollars. A plan without a price costs nothing. */
  reservedPrices?: Partial<Record<PlanName, number>>;
  /** The operator's password and actions. Default: no request can prove to be the operator's. */
  operator?: { password: string; accountAdminFor(by: Actor): AccountAdmin };
  /** The hosts to which deliveries are refused, so that a publish can warn about them. Default: none. */
  findHostRefusal?: FindHostRefusal;
  /** Called with a host, and its port, that a request names and that is refused. */
  onRefusedHost?(account: AccountId, host: string, refused: RefusedHost): void;
  /** The version of the server. */
  version?: string;
  /** This node, and when it started. Default: the nodes of the store are all that is known. */
  thisNode?: { id: NodeId; startedAt: Millis };
  /** The settings of the outgoing connections of this server. */
  egress: ReportedEgress;
  /** Returns the bytes of the disk that has the data folder. Default: there is none. */
  disk?(): Promise<{ free: number; total: number } | null>;
  /** Returns the metrics of the server, in a format that a client with this Accept header can read. */
  metrics?(accept: string | undefined): { contentType: string; text: string };
  /** Returns what is wrong for an account, the most urgent first. */
  listConditions(account: Account): Promise<readonly Condition[]>;
  /** Returns the figures for the health report. */
  health(): Record<string, unknown>;
  /** Reports whether all deliveries are on hold. Default: they are not. */
  isOnHold?(): boolean;
  /** Returns the known reason why this server takes no requests, or null if it takes requests. */
  notReadyReason(): string | null;
}

/** A request on its way to its route. */
export type IncomingRequest = {
  target: Target;
  query: Query;
  rawHeaders: readonly string[];
  params: Readonly<Record<string, string>>;
  body: Bytes;
  callerIp: string | null;
  proof: Proof | null;
  /** The source that was called. */
  source: WebhookSource | null;
  /** The name that the operator gave when opening a session of the console. */
  operatorName?: string;
  /** The attempt whose token was shown. */
  attempt?: ShownAttempt;
  /** Aborted when the client has gone. Only routes that wait receive it. */
  hasLeft?: AbortSignal;
  /** The page that sent the request. Only routes of the console receive it. */
  browser?: BrowserRequest;
  /** The public URL of this server, without a path: as configured, or as the request was addressed. */
  origin: string;
};

/**
 * The response of a route. `ignored`: unknown settings of the other brand, which are named in a response
 * header. A body that is a string is sent unchanged. `onSent`: called once, with whether the whole response
 * was sent. Only routes that wait may have it.
 */
export type RouteResponse = {
  status: number;
  body: unknown;
  ignored?: readonly string[];
  headers?: Readonly<Record<string, string>>;
  /** Cookies to set: the values of Set-Cookie. */
  cookies?: readonly string[];
  onSent?(wasSent: boolean): void;
};

/** The schema of a route's parameters, in its path or in its query. */
export type ParameterSchema = z.ZodObject;

/** The input of a handler: the parameters as their schemas return them. */
export type RouteRequest<P extends ParameterSchema, Q extends ParameterSchema> = {
  account: Account;
  params: z.output<P>;
  query: z.output<Q>;
  incoming: IncomingRequest;
  context: RouteContext;
};

/** The bytes of a request body: a number, or how many times the largest body of a message. */
export type MaxBytes = number | { messages: number };

/** Returns the bytes that the body of a request to a route may have. */
export const readMaxBytes = (
  { body }: Pick<Route, "body">,
  { maxBody = limits.messageBytes }: BodyLimit,
): number => {
  const maxBytes = body?.maxBytes ?? 1024 * 1024;
  return typeof maxBytes === "number" ? maxBytes : maxBytes.messages * maxBody;
};

/** One operation of the API: its matching, checks, handler and documentation. */
export type RouteDescription = {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /**
   * `{name}` matches one segment, which is decoded. `{destination}` at the end matches the rest of the target
   * byte for byte.
   */
  path: string;
  tag: string;
  summary: string;
  about?: string;
  /** Marks a route that will be removed: see docs/versioning.md. Such a route is not on the fast path. */
  deprecated?: Deprecation;
  /** Accepts the settings of messages, as headers and as query parameters. */
  settings?: "all" | "retry" | "resume";
  /** Settings of workflow runs that the route accepts as well. */
  runSettings?: readonly WorkflowSettingName[];
  body?: { about: string; contentType: string; schema: z.ZodType; required: boolean; maxBytes: MaxBytes };
  /** The responses by status. `contentType`: JSON if absent. */
  answers: Readonly<Record<number, { about: string; contentType?: string; schema: z.ZodType }>>;
  /**
   * Marks a route whose response consists of lines of JSON and has no end. The schema of its answer is that
   * of one line. Such a route does not answer HEAD.
   */
  streams?: true;
  /**
   * Marks a bulk action, which consists of many batches. Each batch has its own time limit, so the request
   * may take longer than others.
   */
  runsManyBatches?: true;
  /** Marks a route that waits up to this time for something to happen before it responds. */
  waits?: Millis;
  /**
   * Overrides what the method says: true for a GET that changes something, false for a POST that changes
   * nothing.
   */
  changes?: boolean;
  /**
   * Marks a route whose requests do not count towards the requests per second. `step`: workflow runs post
   * their steps here. The active runs of a disabled account continue, so the command decides what is refused,
   * and not the route.
   */
  operation?: "publish" | "step";
  /**
   * Marks a route whose requests are frequent, so that the fast path answers them (`api/fastPublish/`).
   * Requires `operation`.
   */
  onFastPath?: true;
  /** Ignores a token in the query, so that no link can have the effect of the route. */
  headerOnly?: true;
  /** Refuses the cookie of a console session. The request must have a token. */
  refusesSession?: true;
  /**
   * Opens a route for the holder of an account's password to tokens and sessions, too. They must have the
   * verb that the route needs. The response must not show them secrets.
   */
  takesTokens?: true;
  /** Allows the route to a disabled account, because it only revokes credentials. */
  forPassive?: true;
  /** The verb that a token needs, if it does not follow from `changes`: `read` or `manage`. */
  needs?: Verb;
  /**
   * Marks a route that publishes and checks itself whether the token may publish there. Other publishing
   * routes are closed to tokens with a list of destinations.
   */
  looksAtScope?: true;
  /** Marks a route that checks itself which verb a token needs, because that depends on the request. */
  looksAtVerb?: true;
  /** The reason why the audit log records nothing of a route that changes something. */
  unaudited?: string;
  /** The advice for a caller who uses a method that the path does not have. */
  instead?: string;
  /** The refusals of this route, in addition to those of every route. */
  refusals: readonly ErrorCode[];
};

/** A row of the route table. */
export type Route = RouteDescription & {
  access: Access;
  params: ParameterSchema;
  query: ParameterSchema;
  respond(incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse>;
};

/** The schema of a route without parameters. */
export const noParameters = z.object({});

/**
 * Reports whether a route changes anything. Such a route is closed to read-only tokens and to disabled
 * accounts.
 */
export const changesAnything = ({ changes, method }: Pick<RouteDescription, "changes" | "method">): boolean =>
  changes ?? method !== "GET";

/**
 * Returns the methods that a route answers. HEAD is answered if GET only reads. A webhook of a run takes
 * every method as a call, so it does not answer HEAD, which link checkers send.
 */
export const listMethods = (
  row: Pick<Route, "method" | "changes" | "access" | "streams">,
): readonly (RouteDescription["method"] | "HEAD")[] =>
  row.method === "GET" && row.access !== "hook" && !row.streams && !changesAnything(row)
    ? ["GET", "HEAD"]
    : [row.method];

/** Returns the verb that a token needs for a route. */
export const requiredVerb = (row: Pick<RouteDescription, "changes" | "method" | "needs">): Verb =>
  row.needs ?? (changesAnything(row) ? "manage" : "read");

/**
 * Reports whether the query parameters may also be in a JSON body. They may in all routes that change
 * something and have no other body. Every field of such a body is therefore obeyed or refused, never ignored.
 */
export const takesFieldsInBody = (row: Pick<RouteDescription, "changes" | "method" | "body">): boolean =>
  changesAnything(row) && row.method !== "GET" && row.body === undefined;

/** Returns a route for the holder of a token. */
export function route<
  P extends ParameterSchema = typeof noParameters,
  Q extends ParameterSchema = typeof noParameters,
>(
  row: RouteDescription & {
    params?: P;
    query?: Q;
    handle(request: RouteRequest<P, Q>): Promise<RouteResponse>;
  },
): Route {
  const { handle, ...description } = row;
  const params: ParameterSchema = row.params ?? noParameters;
  const query: ParameterSchema = row.query ?? noParameters;
  const respond = async (incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse> => {
    if (!incoming.proof) throw new Refusal("unauthorized", "token: missing");
    const { values, warnings } = readQuery(description, query, incoming);
    const request = {
      account: incoming.proof.account,
      params: incoming.params,
      query: values,
      incoming,
      context,
    };
    // The schemas are those of the row, so their output has the types that the handler declares.
    return withWarnings(await handle(request as unknown as RouteRequest<P, Q>), warnings);
  };
  return { ...description, access: "token", params, query, respond };
}

/** Returns a route for the holder of an account's password. */
export const accountRoute: typeof route = (row) => ({ ...route(row), access: "account" });

/** Returns a route that needs no credentials. */
export function openRoute<Q extends ParameterSchema = typeof noParameters>(
  row: RouteDescription & {
    query?: Q;
    handle(call: Pick<RouteRequest<typeof noParameters, Q>, "query" | "context">): Promise<RouteResponse>;
  },
): Route {
  const { handle, ...description } = row;
  const query: ParameterSchema = row.query ?? noParameters;
  const respond = async (incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse> =>
    handle({ query: readQuery(description, query, incoming).values as z.output<Q>, context });
  return { ...description, access: "open", params: noParameters, query, respond };
}

/** Parameters as their schemas return them, and warnings for the caller. */
type ReadQuery = { values: unknown; warnings: readonly string[] };

/**
 * Returns the query parameters, checked against their schema. The query of a publish belongs to its
 * destination and is not checked. Throws `Refusal`.
 */
export function readQuery(
  row: RouteDescription,
  schema: ParameterSchema,
  incoming: IncomingRequest,
): ReadQuery {
  if (row.path.endsWith("{destination}")) return { values: {}, warnings: [] };
  const { query, body } = incoming;
  const [unknownSetting] = row.settings ? [] : query.settings;
  if (unknownSetting)
    throw new Refusal(
      "invalid",
      `${unknownSetting.writtenName.slice(0, 200)}: this request takes no settings of messages`,
    );
  const hasFields = body.length > 0 && takesFieldsInBody(row);
  if (query.rest === null && !hasFields)
    return { values: schema === noParameters ? {} : readFields(schema, new Map()), warnings: [] };
  const fields = mergeParameters(query.rest, hasFields ? readJson(body) : {});
  const values = readFields(schema, fields);
  return { values, warnings: makeCountWarnings(fields, values) };
}

/**
 * Returns a warning if `count` exceeds the page. Public clients ask for more than a page can hold and must
 * still get their page.
 */
function makeCountWarnings(fields: ReadonlyMap<string, string[]>, values: unknown): string[] {
  const [requested] = fields.get("count") ?? [];
  const max = typeof values === "object" && values !== null && "count" in values ? values.count : undefined;
  return typeof max === "number" && Number(requested) > max ? [makePageWarning(Number(requested), max)] : [];
}

/** Returns the warning for a page that cannot have as many entries as requested. */
export const makePageWarning = (requested: number, max: number): string =>
  `count: ${requested} exceeds the limit of ${max}`;

/** Returns a response with warnings added. */
export const withWarnings = (response: RouteResponse, warnings: readonly string[]): RouteResponse =>
  warnings.length === 0
    ? response
    : { ...response, headers: warnings.reduce(addWarning, response.headers ?? {}) };
