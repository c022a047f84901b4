import type { StorageReads } from "../layout/storageReads.ts";
import type { DatabaseConnection } from "./database.ts";
import { selectEach } from "./statements.ts";

/** Returns the reads that count tags. */
export function createTagReads(connection: DatabaseConnection): Pick<StorageReads, "tagSpans" | "countTags"> {
  const given = connection.dialect.givenRows(["text", "text", "text", "integer"]);
  const { column } = given;
  return {
    tagSpans: async ({ account, start, end, width, after, before, limit }) => {
      const values = [width, account, start, end, width, account, end, limit];
      const bounds = [account, after, before, account, after, before];
      const rows = await connection.query(spansSql, [...values, ...bounds]);
      return rows.flatMap(({ tag, first, last }) =>
        first === null ? [] : { tag: String(tag), first: String(first), last: String(last) },
      );
    },
    countTags: async ({ account, ranges, limit }) => {
      const counts = ranges.map(() => 0);
      if (ranges.length === 0) return counts;
      const counted = `select count(*) as n, ${column(3)} as at from (select 1 as one from tags
        where account = ${column(0)} and id > ${column(1)} and id < ${column(2)} limit ${limit}) as found`;
      const rows = ranges.map(({ after, before }, at) => [account, after, before, at]);
      for (const { n, at } of await connection.each(
        selectEach(given, "counted", counted),
        ["text", "text", "text", "integer"],
        rows,
      ))
        counts[Number(at)] = Number(n);
      return counts;
    },
  };
}

/**
 * Finds the different tags by one look-up for each: the first row after all rows of the tag before. Reads
 * neither the rows between them, nor an index other than the key.
 */
const spansSql = `with recursive found (tag, at) as (
    select (select substr(id, 1, cast(? as integer)) from tags
      where account = ? and id > ? and id < ? order by id limit 1), 1
    union all
    select (select substr(tags.id, 1, cast(? as integer)) from tags
      where tags.account = ? and tags.id > found.tag || '~' and tags.id < ? order by tags.id limit 1),
      found.at + 1
    from found where found.tag is not null and found.at < cast(? as integer)
  ) select found.tag as tag,
    (select min(id) from tags where account = ? and id > found.tag || ? and id < found.tag || ?) as first,
    (select max(id) from tags where account = ? and id > found.tag || ? and id < found.tag || ?) as last
  from found where found.tag is not null order by found.tag`;
