import { findNotices } from "./pickAlerts.ts";
import { findForbiddenHost } from "../../engine/core/accounts/allowedHosts.ts";
import { pickSigningKeys, signWithSecret } from "../../engine/core/accounts/signingKeys.ts";
import type { AlertSetting } from "./alert.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import type { AlertSender } from "./sending.ts";
import { tellReceiver } from "./sending.ts";
import type { ServerParts } from "../operation.ts";
import type { MaintenanceTask } from "../../engine/upkeep/scheduler.ts";
import { ServerAlerts } from "./serverTask.ts";

/** A receiver that does not respond delays the alerts of at most this many accounts, by one timeout. */
const accountsAtOnce = 20;
/** The time between two looks at the accounts with alerts. */
const checkInterval: Millis = 15 * second;

/** `disk` returns the bytes of the disk of the server, or null. */
export type AlertTaskOptions = AlertSender & Pick<ServerParts, "disk" | "listConditions">;

/** An account with a URL for alerts. */
type AlertedAccount = Account & { alerts: AlertSetting };

const isAlerted = (account: Account): account is AlertedAccount =>
  account.alerts !== undefined && account.deletedAt === undefined && account.state !== "passive";

/**
 * Returns the task that sends alerts. It looks only at accounts that have a URL for them, with
 * bounded reads, and at the server as a whole if the operator has set a URL. It sleeps while there are none.
 * Several nodes may look at once: an alert is recorded once in an hour, and one node at a time sends it.
 */
export function createAlertTask(options: AlertTaskOptions): MaintenanceTask {
  const { store, clock } = options;
  const serverAlerts = new ServerAlerts(options);
  return {
    name: "alerts",
    pause: checkInterval,
    nextAt: async () =>
      (await store.read.serverAlerts()) !== null || (await store.read.accounts()).some(isAlerted)
        ? clock.now()
        : Infinity,
    onWork: (listener) => store.onAccounts(listener),
    run: async () => {
      const server = await store.read.serverAlerts();
      const alerted = (await store.read.accounts()).filter(isAlerted);
      const failures: unknown[] = [];
      const runAll = async (turn: readonly Promise<void>[]): Promise<void> => {
        for (const result of await Promise.allSettled(turn))
          if (result.status === "rejected") failures.push(result.reason);
      };
      if (server !== null) await runAll([serverAlerts.tell(server)]);
      for (let at = 0; at < alerted.length && !options.stop.aborted; at += accountsAtOnce)
        await runAll(alerted.slice(at, at + accountsAtOnce).map((account) => tellAccount(account, options)));
      // The other accounts have their alerts nevertheless.
      if (failures.length > 0) throw failures[0];
    },
  };
}

async function tellAccount(account: AlertedAccount, options: AlertTaskOptions): Promise<void> {
  const { alerts } = account;
  const { store, clock, listConditions } = options;
  const [facts, conditions] = await Promise.all([
    store.read.alertFacts(account.id, clock.now()),
    listConditions(account),
  ]);
  await tellReceiver(
    {
      account: account.id,
      about: account,
      url: alerts.url,
      refusal: findForbiddenHost(account, alerts.url)?.unsendable ?? null,
      pickKeys: (now) =>
        alerts.secret === undefined ? pickSigningKeys(account, now) : signWithSecret(alerts.secret),
      findNotices: (earlier, now) => findNotices({ account, conditions, ...facts, earlier, now }),
    },
    options,
  );
}
