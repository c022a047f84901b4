import { z } from "zod";
import type { AccountChange } from "../../core/commands/account.ts";
import type { Actor } from "../../core/model/auditEntry.ts";
import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal } from "../../core/values/errors.ts";
import type { LongWork } from "../../core/fairness/longWork.ts";
import type { Account, AccountId, Brand, Bytes, Millis, WebhookSource } from "../../core/model/message.ts";
import type { RefusedHosts } from "../../core/values/refusedHost.ts";
import type { Retention } from "../../core/commands/retention.ts";
import type { Prices } from "../../core/accounts/statistics.ts";
import type { Verb } from "../../core/model/rights.ts";
import type { PlanName } from "../../core/model/accountTerms.ts";
import type { Store } from "../../store/store.ts";
import type { Proof } from "../auth/bearer.ts";
import { readJson } from "../http/json.ts";
import { mergeParameters, readFields } from "../http/parameters.ts";
import type { Query, Target } from "../http/target.ts";
import type { WorkflowSettingName } from "../settings/workflow.ts";
import { addWarning } from "../http/warnings.ts";

/** What can be done with accounts by whoever runs the server. Deleted ones are not there. Throws `Refusal`. */
export type AccountAdmin = {
  accounts(): Promise<readonly Account[]>;
  /** With new credentials. */
  create(asked: { name: string; change: AccountChange }): Promise<Account>;
  change(account: AccountId, change: AccountChange): Promise<Account>;
  delete(account: AccountId): Promise<Account>;
};

/** What the routes work with. */
export type RouteContext = {
  store: Store;
  now(): Millis;
  /** Runs slices of work that would hold up other requests. */
  longWork: LongWork;
  /** Rings once after a time, unless it is silenced by calling what it returns. */
  wakeAfter(after: Millis, wake: () => void): () => void;
  retention: Retention;
  /** Queues that an account may have. Not given: as many as `limits` says. */
  maxQueues?: number;
  /** The brand of what is published by a request that shows none. Not given: the neutral one. */
  brand?: Brand;
  /** Where this server is, and which networks its deliveries come from, for those who ask. */
  region?: string;
  sendsFrom?: readonly string[];
  /** By which statistics tell what was used in dollars. Not given: nothing costs anything. */
  prices?: Prices;
  /** Prices of plans in dollars. A plan without a price costs nothing. */
  reservedPrices?: Partial<Record<PlanName, number>>;
  /** Whoever runs the server, by his password. Not given: nobody can prove to be. */
  operator?: { password: string; accountAdminFor(by: Actor): AccountAdmin };
  /** The hosts that deliveries are refused to, so that a publish can warn of them. Not given: none. */
  refusedHost?: RefusedHosts;
  /** Figures for the health report. */
  health(): Record<string, unknown>;
  /** Why it takes no requests, as far as it knows by itself; null: it does. */
  notReadyReason(): string | null;
};

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
  /** The public URL of this server, without a path of its own: as it was set, or as the request was addressed. */
  origin: string;
};

/** `ignored`: settings of the other brand that are unknown, and are named in a response header. A text is sent as it is. */
export type RouteResponse = { status: number; body: unknown; ignored?: readonly string[]; headers?: Readonly<Record<string, string>> };

export type ParameterSchema = z.ZodObject;

/** What a handler is given: the parameters as their schemas make them. */
export type RouteRequest<P extends ParameterSchema, Q extends ParameterSchema> = {
  account: Account;
  params: z.output<P>;
  query: z.output<Q>;
  incoming: IncomingRequest;
  context: RouteContext;
};

/** One thing that can be asked over HTTP: matching, checks, handler and documentation. */
export type RouteDescription = {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** `{name}` stands for one segment, decoded. `{destination}` at the end takes the rest of the target as it came. */
  path: string;
  tag: string;
  summary: string;
  about?: string;
  /** Takes the per-message settings, as headers and as query parameters. */
  settings?: "all" | "retry" | "resume";
  /** Those of workflow runs that it takes besides. */
  runSettings?: readonly WorkflowSettingName[];
  body?: { about: string; contentType: string; schema: z.ZodType; required: boolean; maxBytes: number };
  answers: Readonly<Record<number, { about: string; schema: z.ZodType }>>;
  /** Whether it changes anything, where that is not what its method says: a GET that does, a POST that does not. */
  changes?: boolean;
  /**
   * Work itself, which the requests of a second do not count. `step`: steps of workflow runs come in by it; what has begun
   * goes on when an account is passive, so the command says what it may not do.
   */
  operation?: "publish" | "step";
  /** Requests to it are so frequent that the fast path answers them (`api/fastPublish/`). Only a route with an `operation` can be. */
  onFastPath?: true;
  /** It ends credentials and does nothing else, so a passive account may ask for it as well. */
  forPassive?: true;
  /** What a token must be good for, where that does not follow from what is changed: `read` or `manage`. */
  needs?: Verb;
  /** It publishes, and looks itself whether the token may do that there. Others are closed for tokens that are bound to destinations. */
  looksAtScope?: true;
  /** It looks itself which verb a token needs, because that follows from what is asked. */
  looksAtVerb?: true;
  /** Why the audit log keeps nothing of it, although it changes something. */
  unaudited?: string;
  /** What to ask for instead, for whoever comes to this path with a method that it does not have. */
  instead?: string;
  /** How it may be refused, besides as any request may. */
  refusals: readonly ErrorCode[];
};

/** A row of the table of routes. */
export type Route = RouteDescription & {
  /**
   * Who may ask: the holder of a token, of the password of an account, or of the server; anybody; or whoever knows the
   * secret of a source, or the webhook of a run.
   */
  access: "token" | "account" | "operator" | "open" | "source" | "hook";
  params: ParameterSchema;
  query: ParameterSchema;
  respond(incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse>;
};

export const noParameters = z.object({});

/** Whether a route changes anything: it is closed for tokens that can read only, and for accounts that are passive. */
export const changesAnything = ({ changes, method }: Pick<RouteDescription, "changes" | "method">): boolean => changes ?? method !== "GET";

/**
 * The methods that a route answers. HEAD is answered wherever a GET only reads; a webhook of a run takes each method as a call, and
 * those who look at links send HEAD.
 */
export const listMethods = (row: Pick<Route, "method" | "changes" | "access">): readonly (RouteDescription["method"] | "HEAD")[] =>
  row.method === "GET" && row.access !== "hook" && !changesAnything(row) ? ["GET", "HEAD"] : [row.method];

/** What a token must be good for. */
export const requiredVerb = (row: Pick<RouteDescription, "changes" | "method" | "needs">): Verb =>
  row.needs ?? (changesAnything(row) ? "manage" : "read");

/**
 * Whether the body may hold what the query can: of all that change something and take no body of another kind. So what a
 * body asks for is done or refused, and never passed over.
 */
export const takesFieldsInBody = (row: Pick<RouteDescription, "changes" | "method" | "body">): boolean =>
  changesAnything(row) && row.method !== "GET" && row.body === undefined;

/** A route for the holder of a token. */
export function route<P extends ParameterSchema = typeof noParameters, Q extends ParameterSchema = typeof noParameters>(
  row: RouteDescription & { params?: P; query?: Q; handle(request: RouteRequest<P, Q>): Promise<RouteResponse> },
): Route {
  const { handle, ...description } = row;
  const params: ParameterSchema = row.params ?? noParameters;
  const query: ParameterSchema = row.query ?? noParameters;
  const respond = async (incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse> => {
    if (!incoming.proof) throw new Refusal("unauthorized", "token: missing");
    const { values, warnings } = readQuery(description, query, incoming);
    const request = { account: incoming.proof.account, params: incoming.params, query: values, incoming, context };
    // The schemas are those of the row, so what they made has the types that the handler was declared with.
    return withWarnings(await handle(request as unknown as RouteRequest<P, Q>), warnings);
  };
  return { ...description, access: "token", params, query, respond };
}

/** A route for whoever knows the password of an account. */
export const accountRoute: typeof route = (row) => ({ ...route(row), access: "account" });

/** A route that needs no token. */
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

/** Parameters as their schemas make them, and warnings for the caller. */
type ReadQuery = { values: unknown; warnings: readonly string[] };

/** The query of a publish is the destination's; all others are checked against their schema. */
export function readQuery(row: RouteDescription, schema: ParameterSchema, incoming: IncomingRequest): ReadQuery {
  if (row.path.endsWith("{destination}")) return { values: {}, warnings: [] };
  const { query, body } = incoming;
  const [unknownSetting] = row.settings ? [] : query.settings;
  if (unknownSetting) throw new Refusal("invalid", `${unknownSetting.written.slice(0, 200)}: this request takes no settings of messages`);
  const hasFields = body.length > 0 && takesFieldsInBody(row);
  if (query.rest === null && !hasFields) return { values: schema === noParameters ? {} : readFields(schema, new Map()), warnings: [] };
  const fields = mergeParameters(query.rest, hasFields ? readJson(body) : {});
  const values = readFields(schema, fields);
  return { values, warnings: makeCountWarnings(fields, values) };
}

/** Public clients ask for more than a page can hold, and must get their page, so the answer has a warning. */
function makeCountWarnings(fields: ReadonlyMap<string, string[]>, values: unknown): string[] {
  const [requested] = fields.get("count") ?? [];
  const max = typeof values === "object" && values !== null && "count" in values ? values.count : undefined;
  return typeof max === "number" && Number(requested) > max ? [makePageWarning(Number(requested), max)] : [];
}

/** Returns the warning for a page that cannot have as many entries as were asked for. */
export const makePageWarning = (requested: number, max: number): string => `count: ${requested} asked for; the limit is ${max}`;

/** An answer with warnings. */
export const withWarnings = (response: RouteResponse, warnings: readonly string[]): RouteResponse =>
  warnings.length === 0 ? response : { ...response, headers: warnings.reduce(addWarning, response.headers ?? {}) };
