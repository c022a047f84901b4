import { z } from "zod";
import { parseDuration } from "../../../core/values/duration.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { accountGate, formatGate, keyGate, listGateBounds, parseGate, queueGate } from "../../../core/admission/gate.ts";
import { newLimiter } from "../../../core/admission/limiter.ts";
import { flowAt } from "../../../core/commands/flowControl.ts";
import { limits, spans } from "../../../core/values/limits.ts";
import type { AccountId, Flow, Millis } from "../../../core/model/message.ts";
import { mostUnderWay } from "../../../core/accounts/plans.ts";
import type { Store } from "../../../store/store.ts";
import { choice, one, positive } from "../../http/parameters.ts";
import type { Answer, Parts } from "../../route/route.ts";
import { Listed } from "../../http/listed.ts";
import { route } from "../../route/route.ts";
import { isKey, readKey } from "../../settings/table.ts";
import { minute } from "../../../core/values/time.ts";

const key = z.object({
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

function keyJson(flow: Flow, now: Millis): z.output<typeof key> {
  const { id, waiting, parallelism, running, rate, period, windowStart, windowUsed, paused, pinned } = flowAt(flow, now);
  return {
    flowControlKey: parseGate(id).name,
    ...{ waitListSize: waiting, waitlistSize: waiting, parallelismMax: parallelism ?? 0, parallelismCount: running },
    ...(rate === null
      ? { rateMax: 0, rateCount: 0, ratePeriod: 0, ratePeriodStart: 0 }
      : { rateMax: rate, rateCount: windowUsed, ratePeriod: period / 1000, ratePeriodStart: Math.floor(windowStart / 1000) }),
    ...{ isPaused: paused, isPinnedParallelism: pinned.parallelism, isPinnedRate: pinned.rate },
  };
}

/** Of one answer, and looked at for it. */
const [mostListed, mostSearched] = [10_000, 100_000];

const list = route({
  method: "GET",
  path: "/v2/flowControl",
  tag: "Flow control",
  summary: "List flow control keys",
  about: `The first ${mostListed} keys, in the order of their names, of the first ${mostSearched}.`,
  query: z.object({
    search: one().optional().describe("Only keys with this in their names."),
    after: one().optional().describe("Only keys whose names come after this one: where the last list ended."),
  }),
  answers: { 200: { about: "The keys.", schema: z.array(key) } },
  refusals: [],
  handle: async ({ account, query: { search = "", after = "" }, parts }) => {
    const isWanted = (flow: Flow): boolean => parseGate(flow.id).name.includes(search);
    const shown = (flow: Flow): unknown => keyJson(flow, parts.now());
    return { status: 200, body: new Listed(flowsOf(parts.store, account.id, { kind: "key", most: mostListed, isWanted, shown, after })) };
  },
});

type FlowList = { kind: "queue" | "key"; most: number; isWanted(flow: Flow): boolean; shown(flow: Flow): unknown; after?: string };

/** The queues or the keys of an account in the order of their names. Stretches without any that is wanted make no page. */
export async function* flowsOf(
  store: Store,
  account: AccountId,
  { kind, most, isWanted, shown, after: name = "" }: FlowList,
): AsyncGenerator<readonly unknown[], void> {
  const { before } = listGateBounds(kind);
  const first = formatGate(kind === "queue" ? queueGate(name) : keyGate(name));
  const limit = 1000;
  let left = most;
  for (let [after, seen] = [first, 0]; seen < mostSearched && left > 0; seen += limit) {
    const page = await store.read.allSetUp("flows", { account, after, before, limit });
    const found = page.filter(isWanted).slice(0, left);
    left -= found.length;
    if (found.length > 0) yield found.map(shown);
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
  answers: { 200: { about: "The key.", schema: key } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const flow = isKey(params.key) ? await parts.store.read.setUp("flows", account.id, formatGate(keyGate(params.key))) : null;
    if (flow) return { status: 200, body: keyJson(flow, parts.now()) };
    throw new Refusal("not-found", `flowControlKey: there is no message with the key ${JSON.stringify(params.key.slice(0, 200))}`);
  },
});

/** How a key is changed: what is asked, and the command that does it. It answers null for a key that is not known. */
type Change<Q extends z.ZodObject> = {
  name: string;
  summary: string;
  about: string;
  query?: Q;
  refusals?: readonly "limit-exceeded"[];
  change(store: Store, of: { account: AccountId; key: string }, query: z.output<Q>): Promise<Flow | null>;
};

const changing = <Q extends z.ZodObject>({ name, summary, about, query, refusals = [], change }: Change<Q>) =>
  route({
    method: "POST",
    path: `/v2/flowControl/{key}/${name}`,
    tag: "Flow control",
    ...{ summary, about, refusals },
    params: z.object({ key: z.string() }),
    ...(query ? { query } : {}),
    answers: { 200: { about: "The key as it is now.", schema: key } },
    handle: async ({ account, params, query: asked, parts }) => {
      const of = { account: account.id, key: checkKey(params.key) };
      const flow = await change(parts.store, of, asked);
      return answerOf(parts, flow ?? newLimiter({ account: account.id, gate: keyGate(of.key) }, parts.now()));
    },
  });

const answerOf = (parts: Parts, flow: Flow): Answer => ({ status: 200, body: keyJson(flow, parts.now()) });

function checkKey(text: string): string {
  try {
    return readKey(text);
  } catch (error) {
    if (error instanceof Refusal) throw new Refusal(error.code, `flowControlKey: ${error.message}`);
    throw error;
  }
}

const madeIfMissing = "A key that does not exist yet is made, so that this can be done before its first message.";
const notMade = "For a key that does not exist this changes nothing.";

const pause = changing({
  name: "pause",
  summary: "Pause a flow control key",
  about: `Its messages are taken in, and stand in line; none is sent, and none sent again. What is being sent comes to its end. The period of its rate runs on. ${madeIfMissing}`,
  change: (store, { account, key }) => store.execute("pauseFlow", { account, id: formatGate(keyGate(key)) }),
});

const resume = changing({
  name: "resume",
  summary: "Resume a flow control key",
  about: `Its messages are sent again, the oldest first. ${notMade}`,
  change: (store, { account, key }) => store.execute("resumeFlow", { account, id: formatGate(keyGate(key)) }),
});

const pin = changing({
  name: "pin",
  summary: "Pin limits of a flow control key",
  about: `Sets limits at once, whatever messages bring along, until they are unpinned. Give any of them. Rate and period are pinned together, keep their value where only one is given, and begin a new period. ${madeIfMissing}`,
  query: z.object({
    parallelism: positive().optional().describe(`So many deliveries at once, ${limits.parallelism} at most.`),
    rate: positive().optional().describe(`So many deliveries begun in each period, ${limits.rate} at most.`),
    period: one()
      .transform((text, context) => {
        const period = parseDuration(text);
        if (!period) context.addIssue({ code: "custom", message: "is not a duration of 1s or more, such as 60 or 1m" });
        return period || z.NEVER;
      })
      .optional()
      .describe("A number of seconds, or a duration such as 1m; at most 7 days. 1 second for a key that had none."),
  }),
  refusals: ["limit-exceeded"],
  change: (store, of, pins) => {
    if (pins.parallelism !== undefined || pins.rate !== undefined || pins.period !== undefined)
      return store.execute("pinFlow", { ...of, ...pins });
    throw new Refusal("invalid", "query: nothing to pin; give parallelism, rate or period");
  },
});

const yesOrNo = (about: string) => choice(["true", "false"]).default("false").describe(about);

const unpin = changing({
  name: "unpin",
  summary: "Unpin limits of a flow control key",
  about: `Messages may change them again. Until one does they stay as they are. ${notMade}`,
  query: z.object({ parallelism: yesOrNo("Unpin the parallelism."), rate: yesOrNo("Unpin rate and period.") }),
  change: (store, of, { parallelism, rate }) =>
    store.execute("unpinFlow", { ...of, parallelism: parallelism === "true", rate: rate === "true" }),
});

const resetRate = changing({
  name: "resetRate",
  summary: "Begin a new rate period of a flow control key",
  about: `As many deliveries as its rate allows may begin from now on, whatever has begun before. ${notMade}`,
  change: (store, of) => store.execute("resetRate", of),
});

const reset = changing({
  name: "reset",
  summary: "Reset the counters of a flow control key",
  about: `Begins a new rate period. The count of deliveries under way stays: it is that of the deliveries there are, so setting it to zero would let more be sent at once than its parallelism allows. ${notMade}`,
  change: (store, of) => store.execute("resetRate", of),
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
  handle: async ({ account, parts: { store, now } }) => {
    const most = mostUnderWay(account);
    const [leased, flow] = await Promise.all([
      store.read.underWay(account.id, now()),
      most === null ? null : store.read.setUp("flows", account.id, formatGate(accountGate)),
    ]);
    // The flow counts those whose node is gone as well; it does not count those that had begun before there was a limit.
    return { status: 200, body: { parallelismMax: most ?? 0, parallelismCount: Math.max(leased, flow?.running ?? 0) } };
  },
});

export const flowControl = [list, get, pause, resume, pin, unpin, resetRate, reset, global];
