import { z } from "zod";
import { isAuditId } from "../../engine/core/values/ids.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import { actorKinds } from "../../engine/core/model/auditEntry.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { toJson } from "../../api/fields/field.ts";
import { readTokenNames } from "../../api/views/tokenNames.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { entryFields } from "./fields.ts";
import { cursorParameter } from "../../api/routes/lists/filters.ts";
import { count, timestamp, singleText, textList } from "../../api/http/parameters.ts";
import { operatorRoute } from "../../api/route/operator.ts";
import type { Route, RouteContext, RouteResponse } from "../../api/route/route.ts";
import { route } from "../../api/route/route.ts";

const query = z.object({
  action: textList()
    .optional()
    .describe(
      "An action such as queue.delete, or a word without a dot such as queue for all actions that begin " +
        "with it.",
    ),
  object: singleText().optional().describe("The name or id of the changed object."),
  by: textList()
    .pipe(z.array(z.enum(actorKinds, { error: `must be one of ${actorKinds.join(", ")}` })))
    .optional()
    .describe("How the request was authorized."),
  fromDate: timestamp().optional().describe("The earliest time, inclusive, in Unix milliseconds."),
  toDate: timestamp().optional().describe("The latest time, inclusive, in Unix milliseconds."),
  count: count({ max: 1_000, defaultCount: 100 }),
  cursor: cursorParameter,
});

const answers = {
  200: {
    about: "A page of the audit log.",
    schema: z.object({
      entries: z.array(toSchema(entryFields)).describe("The entries, newest first."),
      cursor: z
        .string()
        .optional()
        .describe("The cursor to pass for the next page. Absent on the last page."),
    }),
  },
};

/** Returns a page of the audit log of an account, or of the server as a whole. */
async function readPage(
  { store }: Pick<RouteContext, "store">,
  account: AccountId,
  { action, object, by, fromDate, toDate, count, cursor }: z.output<typeof query>,
): Promise<RouteResponse> {
  if (cursor !== undefined && !isAuditId(cursor))
    throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  if ((fromDate ?? 0) > (toDate ?? Infinity))
    throw new Refusal("invalid", "fromDate: is later than toDate; swap them");
  const filter = {
    ...(action && { what: action }),
    ...(object !== undefined && { object }),
    ...(by && { by }),
    ...(fromDate !== undefined && { from: fromDate }),
    ...(toDate !== undefined && { to: toDate }),
  };
  const page = await store.read.audit({ account, filter, cursor: cursor ?? null, count });
  const ids = page.entries.flatMap(({ object, by }) => [object, by.token]);
  const tokenNames = await readTokenNames(store, account, ids);
  return {
    status: 200,
    body: {
      entries: page.entries.map((entry) => toJson(entryFields, { ...entry, tokenNames })),
      ...(page.cursor !== null && { cursor: page.cursor }),
    },
  };
}

const ofAccount = route({
  method: "GET",
  path: "/v2/audit",
  tag: "Audit log",
  summary: "Read the audit log",
  about:
    "Returns the changes to the configuration, the tokens, the signing keys and the dead letters of the " +
    "account, and bulk actions, newest first. Publishes and posts of workflow steps are in the message " +
    "log instead. " +
    "A page can have few or no entries and still have a cursor.",
  query,
  answers,
  refusals: [],
  handle: ({ account, query, context }) => readPage(context, account.id, query),
});

const ofServer = operatorRoute({
  method: "GET",
  path: "/v2/admin/audit",
  tag: "Administration",
  summary: "Read the audit log of the server",
  about:
    "Returns the changes to the settings of the server as a whole, newest first: who set or removed the " +
    "URL of its alerts. A change of an account is in the audit log of the account.",
  query,
  answers,
  refusals: [],
  handle: ({ query, context }) => readPage(context, serverAccount, query),
});

/** The routes that read the audit log. */
export const audit: readonly Route[] = [ofAccount, ofServer];
