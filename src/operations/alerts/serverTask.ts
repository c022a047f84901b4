import type { AccountStorage } from "./pickAlerts.ts";
import { findServerNotices } from "./pickAlerts.ts";
import { readLimit } from "../../engine/core/accounts/plans.ts";
import { signWithSecret } from "../../engine/core/accounts/signingKeys.ts";
import { hasStorageQuota } from "../../engine/core/limits/storageQuota.ts";
import type { ServerAlertSetting } from "./alert.ts";
import type { ServerFacts } from "../../engine/core/explain/conditions.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import { hour, minute } from "../../engine/core/values/time.ts";
import type { AlertSender } from "./sending.ts";
import { tellReceiver } from "./sending.ts";

/** The time between two looks at the storage of all accounts. */
const storageInterval: Millis = 5 * minute;

/** Sends the alerts about the server as a whole. */
export class ServerAlerts {
  /** When the storage of all accounts was last read. */
  #storageReadAt: Millis = -Infinity;
  readonly #options: AlertSender & { disk(): Promise<ServerFacts["disk"]> };

  constructor(options: AlertSender & { disk(): Promise<ServerFacts["disk"]> }) {
    this.#options = options;
  }

  /** Records and sends what is due. */
  async tell(alerts: ServerAlertSetting): Promise<void> {
    const { clock, disk } = this.#options;
    const [accounts, bytes] = await Promise.all([this.#readAccounts(clock.now()), disk()]);
    await tellReceiver(
      {
        account: serverAccount,
        about: null,
        url: alerts.url,
        refusal: null,
        pickKeys: () => signWithSecret(alerts.secret),
        findNotices: (earlier, now) => findServerNotices({ alerts, disk: bytes, accounts, earlier, now }),
      },
      this.#options,
    );
  }

  /**
   * Returns the storage of the accounts with a quota. Adding it up is work, so accounts that have stored
   * nothing since the last look are omitted, except in the first look of an hour.
   */
  async #readAccounts(now: Millis): Promise<AccountStorage[]> {
    const before = this.#storageReadAt;
    if (Math.abs(now - before) < storageInterval) return [];
    const { store } = this.#options;
    const accounts = (await store.read.accounts()).filter(hasStorageQuota);
    const isFirstInHour = Math.floor(now / hour) !== Math.floor(before / hour);
    const sums = await store.read.storedBytes(
      accounts.map(({ id }) => id),
      isFirstInHour ? null : before - minute,
    );
    this.#storageReadAt = now;
    const used = new Map(sums.map(({ account, bytes }) => [account, bytes]));
    return accounts.map((account) => ({
      id: account.id,
      name: account.name,
      used: used.get(account.id) ?? 0,
      max: readLimit(account, "storageBytes"),
    }));
  }
}
