import { z } from "zod";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { searchedLength } from "../../engine/core/search/textSearch.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Queries } from "../../engine/store/catalog/queries.ts";
import { route } from "../../api/route/route.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { count, singleText } from "../../api/http/parameters.ts";
import { cursorParameter } from "../../api/routes/lists/filters.ts";
import { foundFields } from "./fields.ts";
import type { FoundThing } from "./found.ts";
import { findById, findNamed, maxNamed } from "./lookUp.ts";
import type { SearchPosition } from "./slices.ts";
import { searchedLists } from "./slices.ts";

/** The rows that one request searches, which takes about 50 ms with bodies of 1 kB. */
const maxRows = 2_000;
/** The slices that one request searches, which limits the bytes of the bodies it reads. */
const maxSlices = 20;

const { min, max } = searchedLength;
const textParameter = singleText().pipe(
  z.string().trim().min(min, `has fewer than ${min} characters`).max(max, `has more than ${max} characters`),
);

const search = route({
  method: "GET",
  path: "/v2/search",
  tag: "Overview",
  summary: "Search for an id or for text",
  about:
    "Finds things by their id or name first: messages, dead letters, runs, events, queues, keys, " +
    `schedules, URL groups and sources (the first ${maxNamed} of each kind). Then it searches unfinished ` +
    "messages, dead letters and runs for the text, newest first: labels, URLs, errors, responses and " +
    "bodies. Upper and lower case count as equal. Headers, redacted bodies, and bodies above 1 MiB are " +
    "never searched, nor are the bodies of messages and runs that ended well. " +
    `One request searches at most ${maxRows} of these; follow the cursor for the rest. A page may be empty ` +
    "and still have a cursor.",
  query: z.object({
    query: textParameter.describe(`The text or the id, of ${min} to ${max} characters.`),
    count: count({ max: 100, defaultCount: 20, about: "As many may be found by id or name." }),
    cursor: cursorParameter,
  }),
  answers: {
    200: {
      about: "A page of the things that were found.",
      schema: z.object({
        found: z
          .array(toSchema(foundFields))
          .describe("The things that were found, in the order of the search."),
        searched: z
          .int()
          .min(0)
          .describe("The number of messages, dead letters and runs that were searched."),
        skipped: z
          .int()
          .min(0)
          .describe("The number of their bodies that were not searched, because they are too large."),
        reached: z
          .int()
          .min(0)
          .optional()
          .describe(
            "The time of the last one that was searched, in Unix milliseconds. Absent if there was none.",
          ),
        cursor: z.string().optional().describe("The cursor of the next page. Absent at the end."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query: { query: text, count, cursor }, context: { store } }) => {
    const position = cursor === undefined ? null : parseCursor(cursor);
    const of = { account: account.id, text };
    const byId = position ? [] : await findById(store.read, of);
    const named = position ? [] : [...byId, ...(await findNamed(store.read, of))].slice(0, count);
    const rest = await searchRows(store.read, { ...of, position: position ?? start, count });
    const known = new Set(named.map(toKey));
    const found = [...named, ...rest.found.filter((thing) => !known.has(toKey(thing)))];
    return {
      status: 200,
      body: {
        found: found.map((thing) => toJson(foundFields, thing)),
        searched: rest.searched,
        skipped: rest.skipped,
        ...(rest.reached !== null && { reached: rest.reached }),
        ...(rest.next && { cursor: formatCursor(rest.next) }),
      },
    };
  },
});

const start: SearchPosition = { list: searchedLists[0], before: null };
const toKey = ({ kind, id }: FoundThing): string => `${kind} ${id}`;

type Searched = {
  found: FoundThing[];
  searched: number;
  skipped: number;
  reached: Millis | null;
  next: SearchPosition | null;
};

/** Searches slice by slice, so that other work comes between them, until the page is full. */
async function searchRows(
  read: Queries,
  of: { account: AccountId; text: string; position: SearchPosition; count: number },
): Promise<Searched> {
  const result: Searched = { found: [], searched: 0, skipped: 0, reached: null, next: of.position };
  for (let slices = 0; slices < maxSlices && result.next && result.searched < maxRows; slices++) {
    const slice = await read.searchSlice({
      ...{ account: of.account, text: of.text },
      ...{ count: of.count - result.found.length, position: result.next },
    });
    result.found.push(...slice.found);
    result.searched += slice.rows;
    result.skipped += slice.skipped;
    result.reached = slice.reached ?? result.reached;
    result.next = slice.next;
    if (result.found.length >= of.count) break;
  }
  return result;
}

const formatCursor = ({ list, before }: SearchPosition): string => `${list}:${before ?? ""}`;

/** Parses a cursor. Throws `Refusal` for any other text. */
function parseCursor(cursor: string): SearchPosition {
  const [, name, before = ""] = /^(\w+):([\w-]{0,64})$/.exec(cursor) ?? [];
  const list = searchedLists.find((one) => one === name);
  if (list === undefined)
    throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  return { list, before: before === "" ? null : before };
}

/** The route that searches. */
export const searches = [search];
