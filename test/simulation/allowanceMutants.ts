import type { Draft, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import type { Flow } from "../../src/core/model/message.ts";
import type { Bend } from "./bent.ts";
import { bent } from "./bent.ts";

type Of = (id: string) => boolean;
const ofAccount: Of = (id) => id === "account:";
const ofEndpoint: Of = (id) => id.startsWith("endpoint:");

/** A decision that writes such flows of an account otherwise, where there was one before. */
const writing =
  (isMeant: Of, turn: (row: Flow, before: Flow) => Flow) =>
  (_: unknown, draft: Draft): Bend => ({
    put: {
      flows: (row) => {
        const before = isMeant(row.id) ? draft.get("flows", row.account, row.id) : undefined;
        return before ? turn(row, before) : row;
      },
    },
  });

/** A decision that takes every account for one without this limit. */
const seeingNo =
  (limit: "globalParallelism" | "parallelism") =>
  (_: unknown, draft: Draft): Bend => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "accounts" && "limits" in row ? { ...row, limits: { ...row.limits, [limit]: undefined } } : row;
    }) as Draft["get"],
  });

/** Faults around what an account may have under way. */
export const allowanceMutants: Record<string, Commands> = {
  "a claim overlooks the limit of the account": bent("claim", seeingNo("globalParallelism")),
  "a publish overlooks the limit of the account": bent("publish", seeingNo("globalParallelism")),
  "a delivery does not count towards its account": bent(
    "claim",
    writing(ofAccount, (row, { running }) => ({ ...row, running: Math.min(running, row.running) })),
  ),
  "a delivery that has ended counts towards its account": bent(
    "settle",
    writing(ofAccount, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lost lease counts towards its account": bent(
    "claim",
    writing(ofAccount, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lease forgets that its account counts it": bent("claim", () => ({ put: { messages: ({ counted: _counted, ...row }) => row } })),
  "a key forgets who went on to the line of the account": bent("claim", () => ({ put: { flows: ({ onward: _onward, ...row }) => row } })),
  "a claim overlooks what the account may have under way to an endpoint": bent("claim", seeingNo("parallelism")),
  "a publish overlooks what the account may have under way to an endpoint": bent("publish", seeingNo("parallelism")),
  "an outcome that lets the next one go overlooks what the account may have under way to an endpoint": bent(
    "settle",
    seeingNo("parallelism"),
  ),
  "a delivery does not count towards its endpoint": bent(
    "claim",
    writing(ofEndpoint, (row, { running }) => ({ ...row, running: Math.min(running, row.running) })),
  ),
  "a delivery that has ended counts towards its endpoint": bent(
    "settle",
    writing(ofEndpoint, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lost lease counts towards its endpoint": bent(
    "claim",
    writing(ofEndpoint, (row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lease that is given back counts towards its endpoint": bent(
    "giveBack",
    writing(ofEndpoint, (row, { running }) => ({ ...row, running })),
  ),
  "a lease forgets that its endpoint counts it": bent("settle", () => ({
    put: { messages: ({ countedToEndpoint: _counted, ...row }) => row },
  })),
  "an endpoint forgets who went on to the line of the account": bent(
    "claim",
    writing(ofEndpoint, ({ onward: _onward, ...row }) => row),
  ),
  "a message that is cancelled is still counted in the line of its endpoint": bent(
    "cancel",
    writing(ofEndpoint, (row, { waiting }) => ({ ...row, waiting })),
  ),
  "who waits for an endpoint is not looked at when the limit is another one": bent("claim", () => ({
    put: {
      flows: (row) =>
        ofEndpoint(row.id) && row.waiting > 0 && row.running >= (row.parallelism ?? Infinity) ? { ...row, dueAt: null } : row,
    },
  })),
  "the row of an endpoint stays when its last place is free": bent("settle", (_, draft) => ({
    drop: (table, _draft, [account = "", id = ""]) => {
      const flow = table === "flows" && ofEndpoint(id) ? draft.get("flows", account, id) : undefined;
      if (flow) draft.put("flows", { ...flow, running: 0, waiting: 0, onward: 0 });
      return flow === undefined;
    },
  })),
  "the endpoints of a host share its places": bent("publish", () => ({
    put: { messages: (row) => ({ ...row, endpoint: new URL(row.endpoint ?? "").origin }) },
  })),
  "messages to one endpoint have places each for itself": bent("publish", () => ({
    put: { messages: (row) => ({ ...row, endpoint: `${row.endpoint}?${row.id}` }) },
  })),
};
