import { Refusal } from "../../engine/core/values/errors.ts";
import type { ServedOperation } from "../operation.ts";
import type { Connect } from "./database.ts";
import { changeOwner, openDatabase } from "./database.ts";
import { OutboxFailure } from "./failure.ts";
import type { AccountOutbox } from "./outbox.ts";
import { findOutboxConditions } from "./conditions.ts";
import { Relays } from "./relays.ts";
import { routes } from "./routes.ts";

/** Outboxes: rows of the databases of users become messages. */
export const outbox: ServedOperation = {
  routes,
  run: (parts) => ({
    worker: new Relays(parts),
    context: { claimOutbox: (one, how) => claimOutbox(one, how, parts) },
  }),
  findConditions: findOutboxConditions,
  clearAccount: async ({ read, execute }, account) => {
    for (const { id } of await read.outboxes(account)) await execute("deleteOutbox", { account, name: id });
  },
};

async function claimOutbox(
  one: AccountOutbox,
  how: "claim" | "take over" | "release",
  parts: Connect,
): Promise<void> {
  try {
    const database = await openDatabase(one, parts);
    await changeOwner(database, one.setting, how).finally(() => database.close());
  } catch (error) {
    throw error instanceof OutboxFailure ? new Refusal("conflict", `databaseUrl: ${error.message}`) : error;
  }
}
