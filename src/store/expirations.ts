import type { ExpiredNeed } from "../core/command.ts";
import { Later } from "../core/errors.ts";
import type { AccountId } from "../core/message.ts";
import type { Expired } from "./loader.ts";
import { nothingExpired } from "./loader.ts";

/** What is past its time, as it was found for a batch. */
export class Expirations {
  readonly #found = new Map<AccountId, Expired | "several">();

  /** Each of several would see what was loaded for another one, and judge by that whether there is more: they are asked again one by one. */
  unasked(needs: readonly ExpiredNeed[]): ExpiredNeed[] {
    const isOther = (account: AccountId, at: number): boolean => needs.findIndex((need) => need.account === account) !== at;
    for (const [at, { account }] of needs.entries()) if (isOther(account, at)) this.#found.set(account, "several");
    return needs.filter(({ account }) => !this.#found.has(account));
  }

  learn(account: AccountId, expired: Expired): void {
    this.#found.set(account, expired);
  }

  /** Throws `Later` where several have asked. */
  of(account: AccountId): Expired {
    const found = this.#found.get(account) ?? nothingExpired;
    if (found === "several") throw new Later();
    return found;
  }
}
