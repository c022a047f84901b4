import type { Clock } from "../clock/clock.ts";
import type { AccountId, Millis } from "../core/values/basics.ts";
import { day, second } from "../core/values/time.ts";
import type { Store } from "../store/store.ts";
import type { MaintenanceTask } from "./scheduler.ts";

/** After the start of the server, others need the disk more. */
const firstDelay: Millis = 10 * second;
/** The pause between two looks at all dead letters. During an update, older nodes may write more. */
const roundPause: Millis = day;
const pause: Millis = second / 4;
const batchSize = 500;

/**
 * Returns the task that adds their causes to dead letters of versions that did not store them, so that they
 * are counted in their groups. It looks at a few hundred dead letters at a time: all of them after the start,
 * and then once a day.
 */
export function createCauseTask({ store, clock }: { store: Store; clock: Clock }): MaintenanceTask {
  let accounts: AccountId[] | null = null;
  let after = "";
  let nextAt = clock.now() + firstDelay;
  return {
    name: "finding the causes of dead letters",
    pause,
    nextAt: async () => nextAt,
    run: async () => {
      accounts ??= (await store.read.accounts()).map(({ id }) => id);
      const [account] = accounts;
      if (account !== undefined) {
        const { portions, last } = await store.read.deadLettersWithoutCause(account, after, batchSize);
        for (const dlqIds of portions) await store.execute("tagCauses", { account, dlqIds });
        after = last ?? "";
        if (last === null) accounts.shift();
      }
      if (accounts.length > 0) return;
      accounts = null;
      nextAt = clock.now() + roundPause;
    },
    onWork: () => () => undefined,
  };
}
