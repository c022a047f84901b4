import type {
  BodyTableName,
  CountNeed,
  DueNeed,
  ExpiredNeed,
  Key,
  LeasedNeed,
  RunRowsNeed,
  StepsNeed,
  TableName,
  WaitlistHead,
} from "../../core/decision/command.ts";
import { KeyMap } from "./keyMap.ts";

/** A list that is read for one command of the batch, and that no other command may use. */
export type Own<Need> = { command: number; need: Need };
/** The rows and lists that decisions of this round looked for and did not find. */
export class WantedReads {
  readonly rows: { [T in TableName]?: Key[] } = {};
  readonly withoutBodies: { [T in BodyTableName]?: Key[] } = {};
  readonly heads: WaitlistHead[] = [];
  readonly quotaCounts: CountNeed[] = [];
  readonly runRows: RunRowsNeed[] = [];
  readonly keptLog: Key[] = [];
  readonly steps: StepsNeed[] = [];
  readonly bodies = new KeyMap<true>();
  readonly expired: Own<ExpiredNeed>[] = [];
  due: Own<DueNeed> | null = null;
  leasedByOthers: Own<LeasedNeed> | null = null;
}

/** Adds a key to those of a table. */
export function addKey<T extends TableName>(keys: { [N in T]?: Key[] }, table: T, key: Key): void {
  const known: Key[] | undefined = keys[table];
  if (known) known.push(key);
  else keys[table] = [key];
}
