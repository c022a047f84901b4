import { beginBounded } from "./database.ts";
import type { Mark, OutboxSetting } from "./outbox.ts";
import { maxCounted } from "./outbox.ts";

// The statements of the relay. Names of schemas are plain names, and ids are numbers, so both are part of the
// text: one round trip carries several statements only without values.

/** The rows of one round, and the bytes of their bodies. One row may have more bytes. */
export const roundRows = 500;
const roundBytes = 4 * 1024 * 1024;
/** The maximum number of bytes of the settings and of the headers of a row. */
const maxSettings = 128 * 1024;
/** The maximum number of characters of a destination. */
export const maxDestination = 20 * 1024;

/**
 * The maximum number of bytes of the answer to `takeRows`. Bodies have two characters for each byte, and the
 * last row of a round may be the largest one.
 */
export const maxRoundAnswer = (maxBody: number): number => 2 * (roundBytes + maxBody) + 4 * 1024 * 1024;

const isId = (id: string): boolean => /^\d{1,19}$/.test(id);
const listIds = (ids: readonly string[]): string => ids.filter(isId).join(", ") || "0";

/** Begins a transaction, and locks and returns the first rows after an id that no other relay has locked. */
export const takeRows = (
  { schema, owner }: Pick<OutboxSetting, "schema" | "owner">,
  after: string,
  maxBody: number,
): string =>
  `${beginBounded};
  with found as (
    select * from ${schema}.outbox where id > ${listIds([after])}
      and (select owner = '${owner.replaceAll(/\W/g, "")}' from ${schema}.relay)
    order by id limit ${roundRows} for update skip locked
  ), sized as (
    select *, octet_length(body) as size, octet_length(settings::text) as settings_size,
      octet_length(headers::text) as headers_size,
      octet_length(left(destination, ${maxDestination})) as destination_size from found
  ), summed as (
    select *, sum(size + settings_size + headers_size + destination_size) over (
      order by id rows between unbounded preceding and 1 preceding
    ) as bytes_before from sized
  )
  select id::text, key, is_workflow, left(destination, ${maxDestination}) as destination,
    case when size <= ${maxBody} then body end as body, size,
    case when settings_size <= ${maxSettings} then settings end as settings,
    case when headers_size <= ${maxSettings} then headers end as headers
  from summed where coalesce(bytes_before, 0) < ${roundBytes} order by summed.id`;

/** Removes rows. */
export const deleteRows = (schema: string, ids: readonly string[]): string =>
  `delete from ${schema}.outbox where id in (${listIds(ids)})`;

/** Moves rows to the rejected ones. Its values are their ids, and the reason of each. */
export const rejectRows = (schema: string): string =>
  `with gone as (delete from ${schema}.outbox where id = any($1::bigint[]) returning *)
  insert into ${schema}.outbox_rejected
    (id, key, created_at, is_workflow, destination, body, settings, headers, reason)
  select id, key, created_at, is_workflow, destination, body, settings, headers, why.reason
  from gone join unnest($1::bigint[], $2::text[]) as why (id, reason) using (id)`;

/** Finds which marks belong to rows that still exist. */
export const findRows = (schema: string, marks: readonly Mark[]): string =>
  `select id::text, key from ${schema}.outbox where id in (${listIds(marks.map(([id]) => id))})`;

/** Reports whether there is a row after an id. */
export const hasRows = (schema: string, after: string): string =>
  `select 1 as one from ${schema}.outbox where id > ${listIds([after])} limit 1`;

/** Notes whether the relay waits for a notification. */
export const setAsleep = (schema: string, isAsleep: boolean): string =>
  `update ${schema}.relay set is_asleep = ${isAsleep} where is_asleep <> ${isAsleep}`;

const countAll = (table: string): string =>
  `select count(*)::int from (select from ${table} limit ${maxCounted}) as counted`;

const ageOf = (column: string): string => `extract(epoch from clock_timestamp() - ${column})::float8 * 1000`;

/**
 * Counts the rows that wait and those that were rejected, and returns the owner. `lag` is the age of the
 * oldest in milliseconds.
 */
export const readCounts = (schema: string): string =>
  `select
    (${countAll(`${schema}.outbox`)}) as waiting,
    (${countAll(`${schema}.outbox_rejected`)}) as rejected,
    (select ${ageOf("created_at")} from ${schema}.outbox order by id limit 1) as lag,
    (select owner from ${schema}.relay) as owner,
    last.reason, ${ageOf("last.rejected_at")} as rejected_lag
  from (select) as one left join (
    select reason, rejected_at from ${schema}.outbox_rejected order by id desc limit 1
  ) as last on true`;
