import { z } from "zod";
import { parseDuration } from "../../../core/values/duration.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { accountGate, formatGate, keyGate, listGateBounds, parseGate, queueGate } from "../../../core/admission/gate.ts";
import { newLimiter } from "../../../core/admission/limiter.ts";
import { withCurrentWindow } from "../../../core/commands/flowControl.ts";
import { limits, spans } from "../../../core/values/limits.ts";
import type { AccountId, Limiter, Millis } from "../../../core/model/message.ts";
import { readAccountParallelism } from "../../../core/accounts/plans.ts";
import type { Store } from "../../../store/store.ts";
import { choice, singleText, positiveNumber } from "../../http/parameters.ts";
import type { RouteResponse, RouteContext } from "../../route/route.ts";
import { PagedList } from "../../http/pagedList.ts";
import { route } from "../../route/route.ts";
import { isValidKey, parseKey } from "../../settings/table.ts";
import { minute } from "../../../core/values/time.ts";

const keySchema = z.object({
  flowControlKey: z.string(),
  waitListSize: z.int().describe("Messages that wait in line. A delayed message is one of them when its time has come."),
  waitlistSize: z.int().describe("The same under another spelling."),
  parallelismMax: z.int().describe("So many deliveries may be under way at once; 0: there is no such limit."),
  parallelismCount: z.int().describe("So many are under way."),
  rateMax: z.int().describe("So many deliveries may begin in each period; 0: there is no such limit."),
  rateCount: z.int().describe("So many have begun in this one; 0 without a limit."),
  ratePeriod: z.int().describe("In seconds; 0 without a limit."),
  ratePeriodStart: z.int().describe("When this period began, in unix seconds; 0 without a limit."),
  isPaused: z.boolean(),
  isPinnedParallelism: z.boolean(),
  isPinnedRate: z.boolean(),
});

function keyJson(limiter: Limiter, now: Millis): z.output<typeof keySchema> {
  const { id, waiting, parallelism, running, rate, period, windowStart, windowUsed, paused, pinned } = withCurrentWindow(limiter, now);
  return {
    flowControlKey: parseGate(id).name,
    waitListSize: waiting,
    waitlistSize: waiting,
    parallelismMax: parallelism ?? 0,
    parallelismCount: running,
    ...(rate === null
      ? { rateMax: 0, rateCount: 0, ratePeriod: 0, ratePeriodStart: 0 }
      : { rateMax: rate, rateCount: windowUsed, ratePeriod: period / 1000, ratePeriodStart: Math.floor(windowStart / 1000) }),
    isPaused: paused,
    isPinnedParallelism: pinned.parallelism,
    isPinnedRate: pinned.rate,
  };
}

/** Of one answer, and looked at for it. */
const maxListed = 10_000;
const maxSearched = 100_000;

const list = route({
  method: "GET",
  path: "/v2/flowControl",
  tag: "Flow control",
  summary: "List flow control keys",
  about: `The first ${maxListed} keys, in the order of their names, of the first ${maxSearched}.`,
  query: z.object({
    search: singleText().optional().describe("Only keys with this in their names."),
    after: singleText().optional().describe("Only keys whose names come after this one: where the last list ended."),
  }),
  answers: { 200: { about: "The keys.", schema: z.array(keySchema) } },
  refusals: [],
  handle: async ({ account, query: { search = "", after = "" }, context }) => {
    const isWanted = (limiter: Limiter): boolean => parseGate(limiter.id).name.includes(search);
    const toJson = (limiter: Limiter): unknown => keyJson(limiter, context.now());
    return {
      status: 200,
      body: new PagedList(listLimiterPages(context.store, account.id, { kind: "key", max: maxListed, isWanted, toJson, after })),
    };
  },
});

type LimiterList = {
  kind: "queue" | "key";
  max: number;
  isWanted(limiter: Limiter): boolean;
  toJson(limiter: Limiter): unknown;
  after?: string;
};

/** The queues or the keys of an account in the order of their names. Stretches without any that is wanted make no page. */
export async function* listLimiterPages(
  store: Store,
  account: AccountId,
  { kind, max, isWanted, toJson, after: name = "" }: LimiterList,
): AsyncGenerator<readonly unknown[], void> {
  const { before } = listGateBounds(kind);
  const first = formatGate(kind === "queue" ? queueGate(name) : keyGate(name));
  const limit = 1000;
  let left = max;
  for (let [after, seen] = [first, 0]; seen < maxSearched && left > 0; seen += limit) {
    const page = await store.read.listResources("limiters", { account, after, before, limit });
    const found = page.filter(isWanted).slice(0, left);
    left -= found.length;
    if (found.length > 0) yield found.map(toJson);
    const last = page.at(-1);
    if (!last || page.length < limit) return;
    after = last.id;
  }
}

const get = route({
  method: "GET",
  path: "/v2/flowControl/{key}",
  tag: "Flow control",
  summary: "Read a flow control key",
  about: `A key exists from the first message that has it, and is forgotten ${spans.idleKey / minute} minutes after nothing is left to be sent with it, unless it is paused or pinned.`,
  params: z.object({ key: z.string() }),
  answers: { 200: { about: "The key.", schema: keySchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const limiter = isValidKey(params.key)
      ? await context.store.read.findResource("limiters", account.id, formatGate(keyGate(params.key)))
      : null;
    if (limiter) return { status: 200, body: keyJson(limiter, context.now()) };
    throw new Refusal("not-found", `flowControlKey: there is no message with the key ${JSON.stringify(params.key.slice(0, 200))}`);
  },
});

/** How a key is changed: what is asked, and the command that does it. It answers null for a key that is not known. */
type KeyChange<Q extends z.ZodObject> = {
  name: string;
  summary: string;
  about: string;
  query?: Q;
  refusals?: readonly "limit-exceeded"[];
  change(store: Store, keyRef: { account: AccountId; key: string }, query: z.output<Q>): Promise<Limiter | null>;
};

const makeKeyRoute = <Q extends z.ZodObject>({ name, summary, about, query, refusals = [], change }: KeyChange<Q>) =>
  route({
    method: "POST",
    path: `/v2/flowControl/{key}/${name}`,
    tag: "Flow control",
    summary,
    about,
    refusals,
    params: z.object({ key: z.string() }),
    ...(query ? { query } : {}),
    answers: { 200: { about: "The key as it is now.", schema: keySchema } },
    handle: async ({ account, params, query: asked, context }) => {
      const keyRef = { account: account.id, key: readKeyParameter(params.key) };
      const limiter = await change(context.store, keyRef, asked);
      return toKeyResponse(context, limiter ?? newLimiter({ account: account.id, gate: keyGate(keyRef.key) }, context.now()));
    },
  });

const toKeyResponse = (context: RouteContext, limiter: Limiter): RouteResponse => ({ status: 200, body: keyJson(limiter, context.now()) });

function readKeyParameter(text: string): string {
  try {
    return parseKey(text);
  } catch (error) {
    if (error instanceof Refusal) throw new Refusal(error.code, `flowControlKey: ${error.message}`);
    throw error;
  }
}

const madeIfMissing = "A key that does not exist yet is made, so that this can be done before its first message.";
const notMade = "For a key that does not exist this changes nothing.";

const pause = makeKeyRoute({
  name: "pause",
  summary: "Pause a flow control key",
  about: `Its messages are taken in, and stand in line; none is sent, and none sent again. What is being sent comes to its end. The period of its rate runs on. ${madeIfMissing}`,
  change: (store, { account, key }) => store.execute("pauseLimiter", { account, id: formatGate(keyGate(key)) }),
});

const resume = makeKeyRoute({
  name: "resume",
  summary: "Resume a flow control key",
  about: `Its messages are sent again, the oldest first. ${notMade}`,
  change: (store, { account, key }) => store.execute("resumeLimiter", { account, id: formatGate(keyGate(key)) }),
});

const pin = makeKeyRoute({
  name: "pin",
  summary: "Pin limits of a flow control key",
  about: `Sets limits at once, whatever messages bring along, until they are unpinned. Give any of them. Rate and period are pinned together, keep their value where only one is given, and begin a new period. ${madeIfMissing}`,
  query: z.object({
    parallelism: positiveNumber().optional().describe(`So many deliveries at once, ${limits.parallelism} at most.`),
    rate: positiveNumber().optional().describe(`So many deliveries begun in each period, ${limits.rate} at most.`),
    period: singleText()
      .transform((text, context) => {
        const period = parseDuration(text);
        if (!period) context.addIssue({ code: "custom", message: "is not a duration of 1s or more, such as 60 or 1m" });
        return period || z.NEVER;
      })
      .optional()
      .describe("A number of seconds, or a duration such as 1m; at most 7 days. 1 second for a key that had none."),
  }),
  refusals: ["limit-exceeded"],
  change: (store, keyRef, pins) => {
    if (pins.parallelism !== undefined || pins.rate !== undefined || pins.period !== undefined)
      return store.execute("pinFlowControl", { ...keyRef, ...pins });
    throw new Refusal("invalid", "query: nothing to pin; give parallelism, rate or period");
  },
});

const yesOrNo = (about: string) => choice(["true", "false"]).default("false").describe(about);

const unpin = makeKeyRoute({
  name: "unpin",
  summary: "Unpin limits of a flow control key",
  about: `Messages may change them again. Until one does they stay as they are. ${notMade}`,
  query: z.object({ parallelism: yesOrNo("Unpin the parallelism."), rate: yesOrNo("Unpin rate and period.") }),
  change: (store, keyRef, { parallelism, rate }) =>
    store.execute("unpinFlowControl", { ...keyRef, parallelism: parallelism === "true", rate: rate === "true" }),
});

const resetRate = makeKeyRoute({
  name: "resetRate",
  summary: "Begin a new rate period of a flow control key",
  about: `As many deliveries as its rate allows may begin from now on, whatever has begun before. ${notMade}`,
  change: (store, keyRef) => store.execute("resetRate", keyRef),
});

const reset = makeKeyRoute({
  name: "reset",
  summary: "Reset the counters of a flow control key",
  about: `Begins a new rate period. The count of deliveries under way stays: it is that of the deliveries there are, so setting it to zero would let more be sent at once than its parallelism allows. ${notMade}`,
  change: (store, keyRef) => store.execute("resetRate", keyRef),
});

const global = route({
  method: "GET",
  path: "/v2/globalParallelism",
  tag: "Flow control",
  summary: "Read how many deliveries are under way",
  answers: {
    200: {
      about: "All deliveries of the account.",
      schema: z.object({
        parallelismMax: z
          .int()
          .describe("So many the account may have under way; others wait until one has ended. 0: as many as the server has hands for."),
        parallelismCount: z.int().describe("So many are under way. Less than there are where very many messages are due within seconds."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, context: { store, now } }) => {
    const max = readAccountParallelism(account);
    const [leased, limiter] = await Promise.all([
      store.read.countInFlight(account.id, now()),
      max === null ? null : store.read.findResource("limiters", account.id, formatGate(accountGate)),
    ]);
    // The flow counts those whose node is gone as well; it does not count those that had begun before there was a limit.
    return { status: 200, body: { parallelismMax: max ?? 0, parallelismCount: Math.max(leased, limiter?.running ?? 0) } };
  },
});

export const flowControl = [list, get, pause, resume, pin, unpin, resetRate, reset, global];
