import type { Key, Rows, RunNeed, TableName } from "../../src/engine/core/decision/command.ts";
import type { AccountId, NodeId } from "../../src/engine/core/values/basics.ts";
import type { MessageState } from "../../src/engine/core/model/messageState.ts";
import { noBytes } from "../../src/engine/core/values/basics.ts";
import { formatKey } from "../../src/engine/store/catalog/rowKeys.ts";
import type { BodyOptions, Range } from "../../src/engine/store/layout/storageReads.ts";
import { tableNames } from "../../src/engine/store/catalog/order.ts";
import { compareText } from "./memoryDue.ts";

type Tables = { [T in TableName]: Map<string, Rows[T]> };

/**
 * The data of a memory store. It is separate from the nodes, so that several can share it and outlive each
 * other.
 */
export class Memory {
  readonly tables = Object.fromEntries(tableNames.map((name) => [name, new Map()])) as unknown as Tables;
  /** The number of each node's latest membership: see `engine/core/cluster/takeover.ts`. */
  readonly memberships = new Map<NodeId, number>();
  /** Whether decisions read rows at once. Otherwise, missing rows are loaded in rounds, as on PostgreSQL. */
  readonly readsAtOnce: boolean;
  /** Whether the rows of hints are loaded before decisions run. */
  readonly usesHints: boolean;
  /** The last batch. Batches of all nodes run one after another. */
  turn: Promise<unknown> = Promise.resolve();

  constructor({ readsAtOnce = true, usesHints = true }: { readsAtOnce?: boolean; usesHints?: boolean } = {}) {
    this.readsAtOnce = readsAtOnce;
    this.usesHints = usesHints;
  }
}

/** Returns the rows of a run, in the order of their ids. */
export const listOfRun = <Row extends { account: AccountId; id: string; run: string | null }>(
  rows: Map<string, Row>,
  of: RunNeed,
): Row[] =>
  filterRows(rows, (row) => row.run === of.run && row.account === of.account).sort((a, b) =>
    compareText(a.id, b.id),
  );

/** Returns the messages in a waitlist, in the order of their ids. */
export const listHeld = ({ tables }: Memory, account: AccountId, line: string): MessageState[] =>
  filterRows(tables.messages, (row) => row.waitlist === line && row.account === account).sort((a, b) =>
    compareText(a.id, b.id),
  );

/** Returns the rows that pass, without copying all others. */
export function filterRows<Row>(rows: Map<string, Row>, pass: (row: Row) => boolean): Row[] {
  const found: Row[] = [];
  for (const row of rows.values()) if (pass(row)) found.push(row);
  return found;
}

/** Returns a function that removes the body of a row, unless bodies are wanted. */
export const withBodies =
  ({ bodies }: BodyOptions = {}) =>
  <Row extends object>(row: Row): Row =>
    bodies === false && "body" in row ? { ...row, body: noBytes } : row;

/** Returns the rows of a table with these keys. Missing rows are left out. */
export function pick<T extends TableName>({ tables }: Memory, table: T, keys: readonly Key[]): Rows[T][] {
  const rows: Map<string, Rows[T]> = tables[table];
  return keys.flatMap((key) => rows.get(formatKey(key)) ?? []);
}

/** Returns the rows of an account in a range of ids, in the order of their ids or the reverse. */
export function listRange<T extends TableName>(
  { tables }: Memory,
  table: T,
  { account, after, before, descending, limit }: Range,
): Rows[T][] {
  // One comparison of a key finds its account and its place: simulations read ranges thousands of times.
  const above = after === undefined ? null : formatKey([account, after]);
  const below = before === undefined ? `${account}\v` : formatKey([account, before]);
  const isWithin = (key: string): boolean => (above === null ? key >= account : key > above) && key < below;
  const isSooner = (a: string, b: string): boolean => (descending ? a > b : a < b);
  const rows: Map<string, Rows[T]> = tables[table];
  let keys: string[] = [];
  for (const key of rows.keys())
    if (isWithin(key)) {
      if (limit > 1 || keys[0] === undefined) keys.push(key);
      else if (isSooner(key, keys[0])) keys = [key];
    }
  keys.sort((a, b) => (isSooner(a, b) ? -1 : 1));
  return keys.slice(0, limit).flatMap((key) => rows.get(key) ?? []);
}
