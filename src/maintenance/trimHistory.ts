import type { LimitedList } from "../core/commands/retention.ts";
import { limitedLists, longestList } from "../core/commands/retention.ts";
import type { Account, Millis } from "../core/model/message.ts";
import type { InputOf } from "../core/commands/index.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { News } from "./workSignal.ts";
import type { Duty } from "./scheduler.ts";
import { hour, minute, second } from "../core/values/time.ts";

/** So soon after something came in, lists may be longer than they may be. */
const soon = 10 * second;
/** What was looked through is looked through again after this at the latest, while anything comes in. */
const longest = 10 * minute;
/** What began before may fail long after the last thing that came in, and tells nobody. */
const afterwards = hour;
/** So many entries a second are expected at most: a list that has room for more is left alone so long. */
const pace = 1_000;
const portion = 500;

/**
 * Lets the oldest lines of the log and of the audit log, and the oldest dead letters, go where an account has more than it may: within seconds
 * of what came in, some hundred rows per transaction, and in the time of nobody. Accounts without such limits are not looked at.
 */
export function trimmingDuty({ store, clock }: { store: Store; clock: Clock }): Duty {
  // At the beginning nothing is known.
  const news = new News({ store, clock, since: -Infinity });
  let again: Millis | null = null;
  let readAt: Millis = 0;
  let limited: readonly Account[] | null = null;
  const nextLook = new Map<string, Millis>();
  store.onAccounts(() => {
    limited = null;
  });
  return {
    name: "trimming",
    pause: soon,
    nextAt: async () => (news.since === null ? (again ?? Infinity) : news.since + soon),
    onNews: (listener) => news.listen(listener),
    run: () => {
      again = news.since === null ? null : clock.now() + afterwards;
      return news.dealWith(async () => {
        // Word of a change may have been lost on its way from another node.
        if (limited === null || clock.now() >= readAt + longest || clock.now() < readAt) {
          readAt = clock.now();
          limited = (await store.read.accounts()).filter(isLimited);
          nextLook.clear();
        }
        for (const account of limited) await trimOne(store, clock, account, nextLook);
      });
    },
  };
}

const lists = Object.keys(limitedLists) as LimitedList[];

const isLimited = (account: Account): boolean => lists.some((list) => longestList(account, list) !== null);

async function trimOne(store: Store, clock: Clock, account: Account, nextLook: Map<string, Millis>): Promise<void> {
  const tooMany = await tooManyOf(store, clock, account, nextLook);
  if (Object.values(tooMany).every((one) => one === null)) return;
  for (let more = true; more;) ({ more } = await store.execute("trim", { account: account.id, tooMany, limit: portion }));
}

async function tooManyOf(store: Store, clock: Clock, account: Account, nextLook: Map<string, Millis>): Promise<InputOf<"trim">["tooMany"]> {
  const tooMany: InputOf<"trim">["tooMany"] = { log: null, keptLog: null, deadLetters: null, audit: null };
  for (const table of lists) {
    const name = `${table} ${account.id}`;
    const most = longestList(account, table);
    if (most === null || clock.now() < (nextLook.get(name) ?? -Infinity)) continue;
    const { id, count } = await store.read.tooMany(table, account.id, most);
    if (id !== null) tooMany[table] = { id, most };
    nextLook.set(name, clock.now() + Math.min(longest, ((most - count) / pace) * second));
  }
  return tooMany;
}
