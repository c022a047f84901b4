import { z } from "zod";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { NotDone, Refusal } from "../../../engine/core/values/errors.ts";
import { toFailedMember } from "../../../engine/core/values/errors.ts";
import type { FailureGroup } from "../../../engine/core/workflows/failureGroups.ts";
import type { DeadLetterEntry } from "../../../engine/store/queries/deadLetters.ts";
import type { FieldsOf } from "../../fields/field.ts";
import { toJson } from "../../fields/field.ts";
import { dryRunOfOne, dryRunSchema } from "../../publishing/dryRun.ts";
import { runBulk } from "../lists/bulk.ts";
import type { EntriesQuery, GroupsQuery } from "../lists/failedRunLists.ts";
import { readEntries, readFailureGroups } from "../lists/failedRunLists.ts";
import type {
  ParameterSchema,
  Route,
  RouteContext,
  RouteDescription,
  RouteRequest,
} from "../../route/route.ts";
import { noParameters, route } from "../../route/route.ts";
import { entryJson, entrySchema } from "../../views/failedRuns.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { notDoneSchema } from "../../views/schemas.ts";

type Row = Pick<RouteDescription, "summary" | "about">;
type IdParameter = z.ZodObject<{ dlqId: z.ZodString }>;
type Request<Q extends ParameterSchema> = RouteRequest<typeof noParameters, Q>;

/** The entries that a request deletes. `listFailed` adds those that it names and that do not exist. */
type Chosen = { ids: string[]; cursor: string | null; listFailed(failures: readonly NotDone[]): NotDone[] };

/** The differences between the dead letters of messages and failed runs. Most of them are documentation. */
export type DeadLetterFamily<
  L extends ParameterSchema,
  G extends ParameterSchema,
  D extends ParameterSchema,
> = {
  path: string;
  tag: string;
  byId: IdParameter;
  /** The response field that has the cursor of the next page. */
  nextPage: z.ZodType;
  makeNotFound(dlqId: string): Refusal;
  list: Row & { query: L; page: string; messages: string; toQuery(query: z.output<L>): EntriesQuery };
  groups: Row & {
    query: G;
    fields: FieldsOf<FailureGroup>;
    entries: string;
    more: string;
    toQuery(query: z.output<G>): GroupsQuery;
  };
  read: Row & {
    answer: string;
    find(context: RouteContext, account: AccountId, dlqId: string): Promise<DeadLetterEntry>;
  };
  /** `deleted`: the documentation of the number. `check` throws `Refusal` if no entry can have this id. */
  remove: Row & {
    deleted: string;
    answer: string;
    query?: ParameterSchema;
    check(context: RouteContext, account: AccountId, dlqId: string): unknown;
  };
  removeMany: Row & {
    answer: string;
    query: D;
    countChosen(request: Request<D>): Promise<z.output<typeof dryRunSchema>>;
    choose(request: Request<D>): Promise<Chosen>;
  };
};

/** Returns the routes that list, group, read and delete the dead letters of a family. */
export const makeDeadLetterRoutes = <
  L extends ParameterSchema,
  G extends ParameterSchema,
  D extends ParameterSchema,
>(
  family: DeadLetterFamily<L, G, D>,
): Route[] => [
  makeListRoute(family),
  makeGroupRoute(family),
  makeReadRoute(family),
  makeRemoveRoute(family),
  makeRemoveManyRoute(family),
];

type Part<K extends "list" | "groups" | "read" | "remove" | "removeMany", Q extends ParameterSchema> = Pick<
  DeadLetterFamily<Q, Q, Q>,
  "path" | "tag" | "byId" | "nextPage" | "makeNotFound" | K
>;

const makeListRoute = <Q extends ParameterSchema>({ path, tag, nextPage, list }: Part<"list", Q>): Route => {
  const { page, messages, toQuery, ...row } = list;
  return route({
    ...row,
    method: "GET",
    path,
    tag,
    answers: {
      200: {
        about: page,
        schema: z.object({ messages: z.array(entrySchema).describe(messages), cursor: nextPage }),
      },
    },
    refusals: [],
    handle: async ({ account, query, context }) => {
      const { entries, cursor } = await readEntries(context, account.id, toQuery(query));
      return {
        status: 200,
        body: { messages: entries.map(entryJson), ...(cursor === null ? {} : { cursor }) },
      };
    },
  });
};

const makeGroupRoute = <Q extends ParameterSchema>({
  path,
  tag,
  nextPage,
  groups,
}: Part<"groups", Q>): Route => {
  const { fields, entries, more, toQuery, ...row } = groups;
  return route({
    ...row,
    method: "GET",
    path: `${path}/groups`,
    tag,
    answers: {
      200: {
        about: "The groups.",
        schema: z.object({
          groups: z.array(toSchema(fields)).describe("The groups, the largest first."),
          entries: z.int().min(0).describe(entries),
          causes: z
            .int()
            .min(0)
            .describe("The number of groups that were found, including those that are not returned."),
          more: z.literal(true).optional().describe(more),
          cursor: nextPage,
        }),
      },
    },
    refusals: [],
    handle: async ({ account, query, context }) => {
      const found = await readFailureGroups(context, account.id, toQuery(query));
      const shown = found.groups.map((group) => toJson(fields, group));
      const rest = found.cursor === null ? {} : { more: true, cursor: found.cursor };
      return { status: 200, body: { groups: shown, entries: found.entries, causes: found.causes, ...rest } };
    },
  });
};

const makeReadRoute = ({ path, tag, byId, read }: Part<"read", ParameterSchema>): Route => {
  const { answer, find, ...row } = read;
  return route({
    ...row,
    method: "GET",
    path: `${path}/{dlqId}`,
    tag,
    params: byId,
    answers: { 200: { about: answer, schema: entrySchema } },
    refusals: ["not-found"],
    handle: async ({ account, params, context }) => ({
      status: 200,
      body: entryJson(await find(context, account.id, params.dlqId)),
    }),
  });
};

const makeDeletedSchema = (deleted: string, cursor: z.ZodType) =>
  z.object({ deleted: z.int().min(0).describe(deleted), failed: notDoneSchema, cursor });

const makeRemoveRoute = (family: Part<"remove", ParameterSchema>): Route => {
  const { deleted, answer, check, query: ownQuery, ...row } = family.remove;
  const schema = makeDeletedSchema(deleted, family.nextPage);
  return route({
    ...row,
    method: "DELETE",
    path: `${family.path}/{dlqId}`,
    tag: family.tag,
    params: family.byId,
    query: ownQuery ?? noParameters,
    answers: { 200: { about: answer, schema: ownQuery ? z.union([schema, dryRunSchema]) : schema } },
    refusals: ["not-found"],
    handle: async ({ account, params: { dlqId }, query, context }) => {
      await check(context, account.id, dlqId);
      if (query["dryRun"] === "true") return { status: 200, body: dryRunOfOne(dlqId) };
      const { done } = await runBulk(context, { account, action: "dlq.delete", entries: [{ id: dlqId }] });
      if (done === 0) throw family.makeNotFound(dlqId);
      return { status: 200, body: { deleted: done } };
    },
  });
};

const makeRemoveManyRoute = <Q extends ParameterSchema>(family: Part<"remove" | "removeMany", Q>): Route => {
  const { answer, countChosen, choose, ...row } = family.removeMany;
  const schema = makeDeletedSchema(family.remove.deleted, family.nextPage);
  return route({
    ...row,
    method: "DELETE",
    path: family.path,
    runsManyBatches: true,
    tag: family.tag,
    answers: { 200: { about: answer, schema: z.union([schema, dryRunSchema]) } },
    refusals: [],
    handle: async (request: Request<Q>) => {
      const { account, query, context } = request;
      if ((query as { dryRun?: unknown }).dryRun === "true")
        return { status: 200, body: await countChosen(request) };
      const { ids, cursor, listFailed } = await choose(request);
      const entries = ids.map((id) => ({ id }));
      const { done, failures } = await runBulk(context, { account, action: "dlq.delete", entries });
      const rest = cursor === null ? {} : { cursor };
      return { status: 200, body: { deleted: done, ...toFailedMember(listFailed(failures)), ...rest } };
    },
  });
};
