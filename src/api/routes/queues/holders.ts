import { z } from "zod";
import type { FlowControlKey, Queue } from "../../../engine/core/admission/gate.ts";
import { keyGate, queueGate } from "../../../engine/core/admission/gate.ts";
import { listBlocking } from "../../../engine/core/explain/whyWaiting.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isId } from "../../../engine/core/values/ids.ts";
import { count } from "../../http/parameters.ts";
import { parseName } from "../../http/target.ts";
import { route } from "../../route/route.ts";
import { isValidKey } from "../../settings/settingTexts.ts";
import { toJson } from "../../fields/field.ts";
import { holdersFields } from "../../fields/holder.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { blockingJson } from "../../views/waitReasons.ts";
import { cursorParameter } from "../lists/filters.ts";

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
    answers: { 200: { about: "A page of holders.", schema: toSchema(holdersFields) } },
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
      const holders = page.holders.flatMap((holder) =>
        listBlocking(holder).map((blocking) => ({
          blocking: blockingJson(blocking),
          message: holder.message,
          state: holder.holders[0],
        })),
      );
      return { status: 200, body: toJson(holdersFields, { ...page, holders }) };
    },
  });

const queueHolders = makeHoldersRoute({
  of: "queue",
  path: "/v2/queues/{name}/holders",
  tag: "Queues",
  summary: "List who holds the slots of a queue",
  about:
    "Lists the messages that hold a slot of the queue. Others wait behind them. A message that is " +
    "finished holds its slot until its callbacks have finished. " +
    "GET /v2/messages?gate=queue&queueName=… lists the messages that wait.",
  toGate: (name) => queueGate(parseName("queue", name)),
});

const keyHolders = makeHoldersRoute({
  of: "key",
  path: "/v2/flowControl/{key}/holders",
  tag: "Flow control",
  summary: "List who holds the slots of a flow-control key",
  about:
    "Lists the messages that count towards the parallelism of the key: those in flight, and those that " +
    "wait for a limit of the account and have reserved a slot. A cancelled message counts until its " +
    "request has ended. If many messages are in flight, one request searches about 4,000 messages of the " +
    "key, so a page may have few holders, or none, and still have a cursor. " +
    "GET /v2/messages?gate=key&flowControlKey=… lists the messages that wait.",
  toGate: (name) => (isValidKey(name) ? keyGate(name) : null),
});

/** The routes that list who holds the slots of queues and keys. */
export const holders = [queueHolders, keyHolders];
