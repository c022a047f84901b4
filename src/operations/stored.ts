import type { TableName } from "../engine/core/decision/command.ts";
import type { StorageReads } from "../engine/store/layout/storageReads.ts";
import { alerts } from "./alerts/stored.ts";
import { auditLog } from "./auditLog/stored.ts";
import { webConsole } from "./console/stored.ts";
import { jobs } from "./jobs/stored.ts";
import { outbox } from "./outbox/stored.ts";
import { overview } from "./overview/stored.ts";
import { search } from "./search/stored.ts";
import { selfCheck } from "./selfCheck/stored.ts";
import { sources } from "./sources/stored.ts";
import { unpublished } from "./unpublished/stored.ts";

// The tables, commands and queries of the operations. The store and its threads load this list, so it imports
// nothing but decisions, tables and queries.

/** One line for each operation that keeps something, in the order in which their tables are locked. */
const stored = [
  jobs,
  alerts,
  auditLog,
  outbox,
  overview,
  search,
  selfCheck,
  sources,
  unpublished,
  webConsole,
] as const;

/** The type that has the members of all types of a union. */
type Together<Union> = (Union extends unknown ? (one: Union) => void : never) extends (all: infer All) => void
  ? All
  : never;

const merge = <All>(parts: readonly object[]): All =>
  Object.fromEntries(parts.flatMap((part): [string, unknown][] => Object.entries(part))) as All;

type Stored = (typeof stored)[number];
// oxlint-disable-next-line typescript/no-generated-empty-object-type -- an operation without queries has none
type QueriesOfAll = Together<ReturnType<Stored["createQueries"]>>;
type Tables = Together<Stored["tables"]>;

const tables = merge<Tables>(stored.map((one) => one.tables));

/** The parts of all operations together. */
export const operations = {
  schema: stored.map((one) => one.schema).join(""),
  tables,
  tableNames: Object.keys(tables) as (keyof Tables & TableName)[],
  keys: merge<Together<Stored["keys"]>>(stored.map((one) => one.keys)),
  commands: merge<Together<Stored["commands"]>>(stored.map((one) => one.commands)),
  createQueries: (reads: StorageReads) => merge<QueriesOfAll>(stored.map((one) => one.createQueries(reads))),
  secretTerms: stored.flatMap((one) => one.secretTerms),
};
