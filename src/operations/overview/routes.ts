import { z } from "zod";
import { retentionFor } from "../../engine/core/accounts/retention.ts";
import { readLimits, readPlan } from "../../engine/core/accounts/plans.ts";
import { hostLogEntries } from "../../engine/core/accounts/hostStatistics.ts";
import { timestamp } from "../../api/http/parameters.ts";
import type { Condition } from "../../engine/core/explain/condition.ts";
import { shortenConditions } from "../../engine/core/explain/condition.ts";
import { hostStates, readHostState } from "../../engine/core/explain/hostState.ts";
import { pickRunning } from "../../engine/core/commands/endAttempts.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { route } from "../../api/route/route.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { nameActor, readTokenNames } from "../../api/views/tokenNames.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { Store } from "../../engine/store/store.ts";
import { activities } from "./activity.ts";
import type { ShownCondition } from "./fields.ts";
import { hostDetailFields, hostFields, situationFields } from "./fields.ts";

/** Returns conditions with the names of the tokens that caused them. */
async function nameCauses(
  store: Pick<Store, "read">,
  account: AccountId,
  conditions: readonly Condition[],
): Promise<ShownCondition[]> {
  const ids = conditions.map(({ by }) => by?.token);
  const names = await readTokenNames(store, account, ids);
  return conditions.map((one) => ({ ...one, by: one.by && nameActor(one.by, names) }));
}

const overview = route({
  method: "GET",
  path: "/v2/overview",
  tag: "Overview",
  summary: "Read what is wrong, and the figures of an account",
  about:
    "One request with what is wrong for an account, and its figures: outcomes of the last minutes, what " +
    "waits and where, dead letters, pauses, runs, and the hosts that fail. Every figure is read with a " +
    "limit, so the request takes milliseconds also with millions of messages.",
  answers: { 200: { about: "The situation of the account.", schema: toSchema(situationFields) } },
  refusals: [],
  handle: async ({ account, context: { store, now, retention, disk, listConditions } }) => {
    const at = now();
    const { log } = retentionFor(account, retention);
    const [situation, ended, conditions, inFlight, free] = await Promise.all([
      store.read.situation(account.id, at),
      store.read.ended(account.id, at - log),
      listConditions(account).then((all) => nameCauses(store, account.id, shortenConditions(all))),
      store.read.countInFlight(account.id, at),
      // The disk belongs to the operator. An account without a plan is the operator's own.
      readPlan(account) === "selfHosted" ? (disk?.() ?? null) : null,
    ]);
    const needed = store.upkeep.disk?.needed() ?? null;
    const maxStorage = readLimits(account).storageBytes;
    const shown = {
      ...situation,
      ended,
      conditions,
      inFlight,
      maxStorage,
      disk: free && { ...free, needed },
    };
    return { status: 200, body: toJson(situationFields, shown) };
  },
});

/** The number of hosts in one response. */
const maxHosts = 100;

const hosts = route({
  method: "GET",
  path: "/v2/hosts",
  tag: "Overview",
  summary: "List hosts",
  about:
    `Lists at most ${maxHosts} hosts that this account delivers to, has lately delivered to, or waits for. ` +
    "Hosts that fail or hang come first, then those with the largest share of failures. " +
    `Attempts are those of the newest ${hostLogEntries} log entries of the account, so a busy host ` +
    "can hide the attempts to others.",
  answers: {
    200: {
      about: "The hosts.",
      schema: z.object({ hosts: z.array(toSchema(hostFields)).describe("The hosts.") }),
    },
  },
  refusals: [],
  handle: async ({ account, context: { store, listConditions } }) => {
    const [found, conditions] = await Promise.all([store.read.hosts(account.id), listConditions(account)]);
    const hosts = found.map((host) => Object.assign(host, { conditions }));
    const order = (host: (typeof hosts)[number]): number => hostStates.indexOf(readHostState(host));
    const shown = hosts.toSorted((a, b) => order(a) - order(b)).slice(0, maxHosts);
    return { status: 200, body: { hosts: shown.map((host) => toJson(hostFields, host)) } };
  },
});

const hostParameter = z.object({
  host: z.string().describe("The host, with the port unless it is the default one."),
});

const host = route({
  method: "GET",
  path: "/v2/hosts/{host}",
  tag: "Overview",
  summary: "Read a host",
  about:
    "Shows how deliveries of this account to a host go: the last hour by minute, what waits for it, and " +
    "the attempts in flight. A host without deliveries has the state unknown.",
  params: hostParameter,
  answers: { 200: { about: "The host.", schema: toSchema(hostDetailFields) } },
  refusals: [],
  handle: async ({ account, params, context: { store, now, listConditions } }) => {
    const [details, conditions] = await Promise.all([
      store.read.host(account.id, params.host, now()),
      listConditions(account),
    ]);
    return { status: 200, body: toJson(hostDetailFields, { ...details, conditions }) };
  },
});

/** The attempts that one command ends. */
const endedAtOnce = 100;

const endAttempts = route({
  method: "POST",
  path: "/v2/hosts/{host}/end-attempts",
  tag: "Overview",
  runsManyBatches: true,
  summary: "End the running attempts to a host",
  about:
    "Closes the connections of the account's running attempts to a host that hangs, on all nodes. Each " +
    "message is then sent again after its retry delay, within all limits and at its place in its queue. " +
    "The attempts use up no retries, and no callback reports them. The destination may have received the " +
    "messages. Attempts that began after `startedBefore` are not ended, so a repeated request ends nothing " +
    "more.",
  params: hostParameter,
  query: z.object({
    startedBefore: timestamp().describe(
      "Ends the attempts that began until this time, in Unix milliseconds of the server.",
    ),
  }),
  answers: {
    200: {
      about: "The attempts are ended.",
      schema: z.object({ ended: z.int().min(0).describe("The number of attempts that were ended.") }),
    },
  },
  refusals: ["conflict"],
  handle: async ({ account, params: { host }, query: { startedBefore }, context: { store } }) => {
    const states = await store.read.runningTo(account.id, host);
    if (states === null)
      throw new Refusal("conflict", "host: too many messages are in flight; end the attempts one by one");
    const running = pickRunning(states, startedBefore);
    let ended = 0;
    for (let from = 0; from < running.length; from += endedAtOnce) {
      const attempts = running.slice(from, from + endedAtOnce);
      ended += (await store.execute("endAttempts", { account: account.id, host, attempts })).ended;
    }
    return { status: 200, body: { ended } };
  },
});

/** The routes that show how an account does. */
export const overviews = [overview, ...activities, hosts, host, endAttempts];
