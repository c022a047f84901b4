import type { BulkActionName, BulkEntry } from "../../../src/engine/core/bulk/entries.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { DueRow } from "../../../src/engine/core/model/dueRow.ts";
import type { Turns } from "../../../src/engine/core/node/turns.ts";
import type { RandomCommand } from "./randomCommands.ts";

/** Returns rows of an account that may be due: some exist, and some do not. */
export function makeDueRows(
  account: string,
  messageIds: readonly string[],
  pickOne: <T>(list: readonly T[]) => T,
): DueRow[] {
  return [
    ...messageIds.map((id): DueRow => ({ table: "messages", account, id })),
    { table: "hostWaitlists", account, id: "one.example" },
    {
      table: "limiters",
      account,
      id: pickOne(["queue:q1", "queue:q2", "key:k1", "key:k2", "account:", "endpoint:https://one.example/x"]),
    },
    { table: "schedules", account, id: pickOne(["s1", "s2"]) },
  ];
}

/** Returns turns through the accounts of each table, starting after this account. */
export const makeTurns = (account: string): Turns => ({
  messages: account,
  hostWaitlists: "",
  limiters: account,
  schedules: "",
  waiters: account,
});

type BulkCandidates = {
  messageIds: readonly string[];
  dlqIds: readonly string[];
  runDlqId: string;
  runs: readonly { id: string; runId: string }[];
  areRunsByKey: boolean;
};

/** Returns the entries of a bulk action, and an unknown one. A failed run is resumed alone. */
export function makeBulkEntries(action: BulkActionName, of: BulkCandidates): BulkEntry[] {
  const none = { id: "none" };
  if (action === "messages.cancel") return [...of.messageIds.map((id) => ({ id })), none];
  if (action === "runs.resume" || action === "runs.restart") return [{ id: of.runDlqId }];
  if (action !== "runs.cancel") return [...of.dlqIds.map((id) => ({ id })), none];
  return of.areRunsByKey
    ? [...of.runs, { id: "none", runId: "none" }]
    : [...of.runs.map(({ runId }) => ({ id: runId })), none];
}

/** Reports whether the attempt of a delivery has a token. */
export const hasToken = ({ message, pullKey }: Delivery): boolean =>
  (message.ackKey ?? pullKey) !== undefined;

/** Returns commands about tokens, secrets, and requests per second. */
export function makeCredentialCommands(
  named: { account: string; id: string },
  random: () => number,
): RandomCommand[] {
  const integerBelow = (count: number): number => Math.floor(random() * count);
  const { account } = named;
  return [
    {
      name: "createToken",
      input: {
        account,
        hash: `token ${random()}`,
        scope: null,
        name: "",
        verbs: ["publish"],
        expiresAt: null,
        destinations: [[], ["https://one.example/*"], ["nowhere"]][integerBelow(3)] ?? [],
      },
    },
    { name: "rewrite", input: { accounts: [account], sources: [[account, named.id]], settings: [] } },
    {
      name: "takeBurst",
      input: { account, needed: 1 + integerBelow(3), recent: integerBelow(9) },
    },
  ];
}
