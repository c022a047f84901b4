import { z } from "zod";
import { isAuditId } from "../../../core/values/ids.ts";
import type { AuditEntry } from "../../../core/model/auditEntry.ts";
import { actorKinds } from "../../../core/model/auditEntry.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { cursorParameter } from "../lists/filters.ts";
import { count, timestamp, singleText, textList } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";

const entrySchema = z.object({
  id: z.string(),
  time: z.int().describe("In unix milliseconds."),
  action: z.string().describe("What was done, in a word such as queue.delete."),
  object: z.string().nullable().describe("The name or id of what it was done to; of many the first one. Null: the account itself."),
  count: z.int().optional().describe("How many there were, where a request can mean many."),
  fields: z.array(z.string()).optional().describe("What was changed of it; of limits, which."),
  by: z.object({
    kind: z
      .enum(actorKinds)
      .describe("What was proved: a token of the account, its user name and password, the password of the operator, or the command line."),
    token: z.string().optional().describe("Which token: main, or the id of another one."),
    user: z.string().optional().describe("The user name."),
    address: z.string().nullable().describe("The address that the request came from; null where there was none."),
  }),
});

const entryJson = ({ id, time, what, object, count, fields, by }: AuditEntry): z.output<typeof entrySchema> => ({
  id,
  time,
  action: what,
  object,
  ...(count !== undefined && { count }),
  ...(fields && { fields: [...fields] }),
  by: { kind: by.kind, ...(by.token && { token: by.token }), ...(by.name && { user: by.name }), address: by.address },
});

const query = z.object({
  action: textList().optional().describe("These actions. A word without a dot means all that begin with it: queue."),
  object: singleText().optional().describe("What was done to this name or id."),
  by: textList()
    .pipe(z.array(z.enum(actorKinds, { error: `is none of ${actorKinds.join(", ")}` })))
    .optional()
    .describe("What was proved by whoever did it."),
  fromDate: timestamp().optional().describe("Not before this moment, in unix milliseconds, inclusive."),
  toDate: timestamp().optional().describe("Not after this moment, in unix milliseconds, inclusive."),
  count: count({ max: 1_000, defaultCount: 100 }),
  cursor: cursorParameter,
});

/** Who did what to the settings of the account. */
export const audit = route({
  method: "GET",
  path: "/v2/audit",
  tag: "Audit log",
  summary: "Read the audit log",
  about:
    "Who did what to the configuration, the tokens and the keys of the account, to its dead letters, and to many things at once; newest first. What publishes, or goes on with a run, is in the log of messages instead. A page can be short, or empty, and yet have a cursor.",
  query,
  answers: {
    200: {
      about: "A page of the audit log.",
      schema: z.object({
        entries: z.array(entrySchema),
        cursor: z.string().optional().describe("Where the next page begins. Absent at the end."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query: { action, object, by, fromDate, toDate, count, cursor = null }, context }) => {
    if (cursor !== null && !isAuditId(cursor)) throw new Refusal("invalid", "cursor: not one that this list has given out");
    if ((fromDate ?? 0) > (toDate ?? Infinity)) throw new Refusal("invalid", "fromDate: is later than toDate, so that nothing can pass");
    const filter = {
      ...(action && { what: action }),
      ...(object !== undefined && { object }),
      ...(by && { by }),
      ...(fromDate !== undefined && { from: fromDate }),
      ...(toDate !== undefined && { to: toDate }),
    };
    const page = await context.store.read.audit({ account: account.id, filter, cursor, count });
    return { status: 200, body: { entries: page.entries.map(entryJson), ...(page.cursor !== null && { cursor: page.cursor }) } };
  },
});
