import { z } from "zod";
import { parseDuration } from "../../../engine/core/values/duration.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import {
  accountGate,
  formatGate,
  keyGate,
  listGateBounds,
  parseGate,
  queueGate,
} from "../../../engine/core/admission/gate.ts";
import { newLimiter } from "../../../engine/core/admission/limiter.ts";
import { withCurrentWindow } from "../../../engine/core/commands/flowControl.ts";
import { limits, spans } from "../../../engine/core/values/limits.ts";
import type { AccountId, Millis } from "../../../engine/core/values/basics.ts";
import type { Limiter } from "../../../engine/core/model/limiter.ts";
import { readAccountParallelism } from "../../../engine/core/accounts/plans.ts";
import type { Store } from "../../../engine/store/store.ts";
import { choice, singleText, positiveNumber } from "../../http/parameters.ts";
import type { RouteResponse, RouteContext } from "../../route/route.ts";
import { toJson } from "../../fields/field.ts";
import { keyFields } from "../../fields/flowControlKey.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { PagedList } from "../../http/pagedList.ts";
import { route } from "../../route/route.ts";
import { isValidKey, parseKey } from "../../settings/settingTexts.ts";
import { minute } from "../../../engine/core/values/time.ts";

const keySchema = toSchema(keyFields);
const keyJson = (limiter: Limiter, now: Millis): Record<string, unknown> =>
  toJson(keyFields, withCurrentWindow(limiter, now));

/** The maximum number of limiters in one response. */
const maxListed = 10_000;
/** The maximum number of limiters that are searched for one response. */
const maxSearched = 100_000;

const list = route({
  method: "GET",
  path: "/v2/flowControl",
  tag: "Flow control",
  summary: "List flow-control keys",
  about:
    `Returns at most ${maxListed} keys in the order of their names. ` +
    `At most ${maxSearched} keys are searched; use \`after\` to search the others.`,
  query: z.object({
    search: singleText().optional().describe("Text that the names of the keys contain, in the same case."),
    after: singleText()
      .optional()
      .describe("Name after which the list starts, such as the last name of the previous list."),
  }),
  answers: { 200: { about: "The flow-control keys.", schema: z.array(keySchema) } },
  refusals: [],
  handle: async ({ account, query: { search = "", after = "" }, context }) => {
    const isWanted = (limiter: Limiter): boolean => parseGate(limiter.id).name.includes(search);
    const show = (limiter: Limiter): unknown => keyJson(limiter, context.now());
    return {
      status: 200,
      body: new PagedList(
        listLimiterPages(context.store, account.id, { kind: "key", max: maxListed, isWanted, show, after }),
      ),
    };
  },
});

type LimiterList = {
  kind: "queue" | "key";
  max: number;
  isWanted(limiter: Limiter): boolean;
  show(limiter: Limiter): unknown;
  after?: string;
};

/**
 * Returns the pages of an account's queues or keys, in the order of their names. Pages without a wanted
 * limiter are skipped. Searches at most `maxSearched` limiters.
 */
export async function* listLimiterPages(
  store: Store,
  account: AccountId,
  { kind, max, isWanted, show, after: name = "" }: LimiterList,
): AsyncGenerator<readonly unknown[], void> {
  const { before } = listGateBounds(kind);
  const first = formatGate(kind === "queue" ? queueGate(name) : keyGate(name));
  const limit = 1000;
  let left = max;
  let after = first;
  for (let seen = 0; seen < maxSearched && left > 0; seen += limit) {
    const page = await store.read.listResources("limiters", { account, after, before, limit });
    const found = page.filter(isWanted).slice(0, left);
    left -= found.length;
    if (found.length > 0) yield found.map(show);
    const last = page.at(-1);
    if (!last || page.length < limit) return;
    after = last.id;
  }
}

const get = route({
  method: "GET",
  path: "/v2/flowControl/{key}",
  tag: "Flow control",
  summary: "Read a flow-control key",
  about:
    "A key exists from its first message on. " +
    `It is deleted after ${spans.idleKey / minute} minutes without messages to send, ` +
    "unless it is paused or pinned.",
  params: z.object({ key: z.string() }),
  answers: { 200: { about: "The flow-control key.", schema: keySchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const limiter = isValidKey(params.key)
      ? await context.store.read.findResource("limiters", account.id, formatGate(keyGate(params.key)))
      : null;
    if (limiter) return { status: 200, body: keyJson(limiter, context.now()) };
    throw new Refusal(
      "not-found",
      `flowControlKey: there is no flow-control key ${JSON.stringify(params.key.slice(0, 200))}`,
    );
  },
});

/**
 * A change of a key: its route, and the function that executes it. `change` returns null if the key does not
 * exist.
 */
type KeyChange<Q extends z.ZodObject> = {
  name: string;
  summary: string;
  about: string;
  query?: Q;
  refusals?: readonly "limit-exceeded"[];
  change(
    store: Store,
    keyRef: { account: AccountId; key: string },
    query: z.output<Q>,
  ): Promise<Limiter | null>;
};

const makeKeyRoute = <Q extends z.ZodObject>({
  name,
  summary,
  about,
  query,
  refusals = [],
  change,
}: KeyChange<Q>) =>
  route({
    method: "POST",
    path: `/v2/flowControl/{key}/${name}`,
    tag: "Flow control",
    summary,
    about,
    refusals,
    params: z.object({ key: z.string() }),
    ...(query ? { query } : {}),
    answers: { 200: { about: "The flow-control key after the change.", schema: keySchema } },
    handle: async ({ account, params, query: changes, context }) => {
      const keyRef = { account: account.id, key: readKeyParameter(params.key) };
      const limiter = await change(context.store, keyRef, changes);
      return toKeyResponse(
        context,
        limiter ?? newLimiter({ account: account.id, gate: keyGate(keyRef.key) }, context.now()),
      );
    },
  });

const toKeyResponse = (context: RouteContext, limiter: Limiter): RouteResponse => ({
  status: 200,
  body: keyJson(limiter, context.now()),
});

function readKeyParameter(text: string): string {
  try {
    return parseKey(text);
  } catch (error) {
    if (error instanceof Refusal) throw new Refusal(error.code, `flowControlKey: ${error.message}`);
    throw error;
  }
}

const madeIfMissing = "Creates the key if it does not exist, so you can do this before the first message.";
const notMade = "Has no effect if the key does not exist.";

const pause = makeKeyRoute({
  name: "pause",
  summary: "Pause a flow-control key",
  about:
    "Messages with the key are still accepted, but none is sent or retried until the key is resumed. " +
    `Deliveries in flight are completed. The rate period continues. ${madeIfMissing}`,
  change: (store, { account, key }) =>
    store.execute("pauseLimiter", { account, id: formatGate(keyGate(key)) }),
});

const resume = makeKeyRoute({
  name: "resume",
  summary: "Resume a flow-control key",
  about: `Continues to send the messages with the key, oldest first. ${notMade}`,
  change: (store, { account, key }) =>
    store.execute("resumeLimiter", { account, id: formatGate(keyGate(key)) }),
});

const pin = makeKeyRoute({
  name: "pin",
  summary: "Pin limits of a flow-control key",
  about:
    "Sets limits of the key immediately. Messages cannot change pinned limits until they are unpinned. " +
    "Give at least one limit. Rate and period are always pinned together: an omitted one keeps its value, " +
    `and a new period starts. ${madeIfMissing}`,
  query: z.object({
    parallelism: positiveNumber()
      .optional()
      .describe(`Maximum number of deliveries in flight at once, from 1 to ${limits.parallelism}.`),
    rate: positiveNumber()
      .optional()
      .describe(`Maximum number of deliveries that may start in each period, from 1 to ${limits.rate}.`),
    period: singleText()
      .transform((text, context) => {
        const period = parseDuration(text);
        if (!period)
          context.addIssue({ code: "custom", message: "is not a duration from 1ms to 7d, such as 60 or 1m" });
        return period || z.NEVER;
      })
      .optional()
      .describe(
        "Length of a period: a number of seconds, or a duration such as 1m, from 1ms to 7d. " +
          "Default for a key without a period: 1s.",
      ),
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
  summary: "Unpin limits of a flow-control key",
  about:
    "Messages can change the limits again. The limits keep their values until a message changes them. " +
    notMade,
  query: z.object({
    parallelism: yesOrNo("`true`: unpin the parallelism. Default: `false`."),
    rate: yesOrNo("`true`: unpin rate and period. Default: `false`."),
  }),
  change: (store, keyRef, { parallelism, rate }) =>
    store.execute("unpinFlowControl", {
      ...keyRef,
      parallelism: parallelism === "true",
      rate: rate === "true",
    }),
});

const resetRate = makeKeyRoute({
  name: "resetRate",
  summary: "Start a new rate period of a flow-control key",
  about:
    "Sets the count of deliveries in the current period to 0, so that the full rate is available. " + notMade,
  change: (store, keyRef) => store.execute("resetRate", keyRef),
});

const reset = makeKeyRoute({
  name: "reset",
  summary: "Reset the counters of a flow-control key",
  about:
    "Starts a new rate period. The count of deliveries in flight does not change, because they still run. " +
    `Setting it to 0 would allow more deliveries at once than the parallelism. ${notMade}`,
  change: (store, keyRef) => store.execute("resetRate", keyRef),
});

const global = route({
  method: "GET",
  path: "/v2/globalParallelism",
  tag: "Flow control",
  summary: "Read the number of deliveries in flight",
  answers: {
    200: {
      about: "The deliveries of the account and their limit.",
      schema: z.object({
        parallelismMax: z
          .int()
          .describe(
            "Maximum number of deliveries that the account may have in flight at once; other messages " +
              "wait. 0: no limit but the capacity of the server.",
          ),
        parallelismCount: z
          .int()
          .describe(
            "Number of deliveries in flight. It can be too low while very many messages are due within " +
              "seconds.",
          ),
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
    // The larger count is shown. The limiter also counts deliveries of a node that is gone. It does not count
    // deliveries that started before the account had a limit.
    return {
      status: 200,
      body: { parallelismMax: max ?? 0, parallelismCount: Math.max(leased, limiter?.running ?? 0) },
    };
  },
});

/** The routes of flow-control keys. */
export const flowControl = [list, get, pause, resume, pin, unpin, resetRate, reset, global];
