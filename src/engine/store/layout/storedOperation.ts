import type { Decision, Key, Rows, TableName } from "../../core/decision/command.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { OperationTerms } from "../../core/model/accountTerms.ts";
import type { StorageReads } from "./storageReads.ts";
import type { Table } from "./table.ts";

/**
 * The stored part of an operation: its tables, their keys, its commands and its
 * queries. All of it is as pure as the engine's own: three stores and the simulation run it.
 */
export type StoredOperation = {
  /** The statements that create its tables, in the language of `schema.sql`. */
  schema: string;
  tables: { readonly [T in TableName]?: Table<Rows[T]> };
  keys: { readonly [T in TableName]?: (row: Rows[T]) => Key };
  commands: Readonly<Record<string, Decision<never, unknown>>>;
  createQueries(reads: StorageReads): Readonly<Record<string, (...args: never[]) => Promise<unknown>>>;
  /** The fields of `OperationTerms` and `ServerSettings` that the store encrypts. */
  secretTerms?: readonly (keyof OperationTerms)[];
};

/** An operation that keeps nothing. */
export const nothingStored = {
  schema: "",
  tables: {},
  keys: {},
  commands: {},
  createQueries: () => ({}),
  secretTerms: [],
} as const satisfies StoredOperation;

/** Returns the key of a row that belongs to an account. */
export const keyOfAccountRow = ({ account, id }: { account: AccountId; id: string }): Key => [account, id];
