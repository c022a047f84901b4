import { z } from "zod";
import type { FlowControlKey, Queue } from "../../../engine/core/admission/gate.ts";
import { keyGate, queueGate } from "../../../engine/core/admission/gate.ts";
import { listBlocking } from "../../../engine/core/explain/whyWaiting.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isId } from "../../../engine/core/values/ids.ts";
import type { Holder } from "../../../engine/store/queries/holders.ts";
import { count } from "../../http/parameters.ts";
import { checkName } from "../../http/target.ts";
import { route } from "../../route/route.ts";
import { isValidKey } from "../../settings/settingTexts.ts";
import { omitMissing } from "../../views/messages.ts";
import { blockingJson } from "../../views/waitReasons.ts";
import { cursorParameter } from "../lists/filters.ts";

const holderSchema = z.object({
  messageId: z.string().describe("The id of the message that holds the place."),
  callbackId: z
    .string()
    .optional()
    .describe("The id of its callback that is not finished. Present if the message itself is finished."),
  text: z.string().describe("The state of the message or its callback as a sentence."),
  url: z.string().optional().describe("The URL that the message or its callback is sent to."),
  createdAt: z
    .int()
    .optional()
    .describe("When the message or its callback was accepted, in Unix milliseconds."),
  attempts: z.int().min(0).optional().describe("The number of its attempts that have ended."),
});

const holdersSchema = z.object({
  used: z.int().min(0).describe("The number of places that are held."),
  limit: z.int().min(0).optional().describe("The parallelism: the number of places. Absent without a limit."),
  waiting: z.int().min(0).describe("The number of messages that wait for a place."),
  paused: z.boolean().describe("Whether the queue or key is paused."),
  holders: z.array(holderSchema).describe("The holders of the places, oldest message first."),
  cursor: z.string().optional().describe("The cursor to pass for the next page. Absent on the last page."),
});

type HoldersRoute = {
  of: "queue" | "key";
  path: string;
  tag: string;
  summary: string;
  about: string;
  /** Returns the gate with this name. Returns null if no gate can have it. */
  toGate(name: string): Queue | FlowControlKey | null;
};

const makeHoldersRoute = ({ of, path, tag, summary, about, toGate }: HoldersRoute) =>
  route({
    method: "GET",
    path,
    tag,
    summary,
    about,
    params: z.object({ [of === "queue" ? "name" : "key"]: z.string() }),
    query: z.object({ count: count({ max: 100, defaultCount: 100 }), cursor: cursorParameter }),
    answers: { 200: { about: "A page of holders.", schema: holdersSchema } },
    refusals: ["not-found"],
    handle: async ({ account, params, query: { count, cursor = null }, context: { store } }) => {
      const name = String(Object.values(params)[0]);
      if (cursor !== null && !isId(cursor))
        throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
      const gate = toGate(name);
      const page = gate && (await store.read.holders({ account: account.id, gate, cursor, count }));
      if (!page) {
        const [field, noun] = of === "queue" ? ["queue", "queue"] : ["flowControlKey", "flow-control key"];
        throw new Refusal("not-found", `${field}: there is no ${noun} ${JSON.stringify(name.slice(0, 200))}`);
      }
      const { running, waitingDownstream = 0, waiting, parallelism, paused } = page.limiter;
      return {
        status: 200,
        body: omitMissing({
          used: running + waitingDownstream,
          limit: parallelism,
          waiting,
          paused,
          holders: page.holders.flatMap(holderJson),
          cursor: page.cursor,
        }),
      };
    },
  });

const holderJson = (holder: Holder): Record<string, unknown>[] =>
  listBlocking(holder).map((blocking) =>
    omitMissing({
      ...blockingJson(blocking),
      url: holder.message?.url,
      createdAt: holder.message?.createdAt,
      attempts: holder.holders[0]?.attempts,
    }),
  );

const queueHolders = makeHoldersRoute({
  of: "queue",
  path: "/v2/queues/{name}/holders",
  tag: "Queues",
  summary: "List who holds the slots of a queue",
  about:
    "Lists the messages that hold a slot of the queue. Others wait behind them. A message that is " +
    "finished holds its slot until its callbacks have finished. " +
    "GET /v2/messages?gate=queue&queueName=… lists the messages that wait.",
  toGate: (name) => queueGate(checkName("queue", name)),
});

const keyHolders = makeHoldersRoute({
  of: "key",
  path: "/v2/flowControl/{key}/holders",
  tag: "Flow control",
  summary: "List who holds the places of a flow-control key",
  about:
    "Lists the messages that count towards the parallelism of the key: those in flight, and those that " +
    "wait for a limit of the account and have reserved a place. A cancelled message counts until its " +
    "request has ended. If many messages are in flight, one request searches about 4,000 messages of the " +
    "key, so a page may have few holders, or none, and still have a cursor. " +
    "GET /v2/messages?gate=key&flowControlKey=… lists the messages that wait.",
  toGate: (name) => (isValidKey(name) ? keyGate(name) : null),
});

/** The routes that list who holds the places of queues and keys. */
export const holders = [queueHolders, keyHolders];
