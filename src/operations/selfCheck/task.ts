import type { Repaired } from "../operation.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { Suspect } from "./suspect.ts";
import { hour, minute, second } from "../../engine/core/values/time.ts";
import type { Clock } from "../../engine/clock/clock.ts";
import { withAuditActor } from "../../engine/store/auditActor.ts";
import type { CheckedPart } from "./suspects.ts";
import { checkedParts } from "./suspects.ts";
import type { OldestDue } from "../../engine/store/layout/storageReads.ts";
import { dueKinds } from "../../engine/store/layout/storageReads.ts";
import type { Store } from "../../engine/store/store.ts";
import type { MaintenanceTask } from "../../engine/upkeep/scheduler.ts";
import { WorkSignal } from "../../engine/upkeep/workSignal.ts";

/** The pause between two slices. A suspect is real if it is still there after this time. */
const slicePause: Millis = 10 * second;
/** How many rows, and how many parts of accounts, one slice looks at. */
const sliceRows = 50;
const sliceParts = 50;
/**
 * Work that began earlier may end, and leave something behind, long after the last notification. A second
 * look at all accounts follows after this time.
 */
const followUpDelay: Millis = hour;
/** Due rows are taken within seconds, unless more are due than can be sent. */
const lateAfter: Millis = minute;

/** The node that sends due messages. */
type Sender = {
  /** Reports whether it could send more, and is allowed to. */
  couldSend(): boolean;
  /** Makes it look for due messages now. */
  wake(): void;
};

type SelfCheckOptions = {
  store: Store;
  clock: Clock;
  sender: Sender;
  onRepair(repaired: Repaired): void;
};

/**
 * Returns the task that looks for stuck work and repairs it. Stuck are, for example, due rows that no node
 * takes, and runs whose message was lost. Counters that differ from a recount are repaired as well. It looks
 * at a bounded number of rows at once. A repair follows only if two looks, 10 s apart, find the same.
 *
 * After a change, the task looks at all accounts, and again an hour later. Then it sleeps until the next
 * change, or until a minute after the next row is due.
 */
export function createSelfCheckTask({ store, clock, sender, onRepair }: SelfCheckOptions): MaintenanceTask {
  const workSignal = new WorkSignal({ store, clock, since: -Infinity });
  const audited = withAuditActor(store, { kind: "server", address: null });
  let round: Round | null = null;
  let followUpAt: Millis = Infinity;
  let late: ReadonlySet<string> = new Set();
  const repairAll = async (account: AccountId, suspects: readonly Suspect[]): Promise<void> => {
    for (const suspect of suspects) {
      const { repaired } = await audited.execute("repair", { account, suspect });
      if (repaired) onRepair({ what: suspect.kind, account, id: suspect.id });
    }
  };
  const checkDue = async (): Promise<void> => {
    const found = await findLate(store, clock, sender);
    const again = found.filter((one) => late.has(JSON.stringify(one)));
    late = new Set(found.map((one) => JSON.stringify(one)));
    if (again.length === 0) return;
    for (const one of again) onRepair({ what: "late", ...one });
    late = new Set();
    sender.wake();
  };
  const mustBegin = (): boolean => workSignal.since !== null || clock.now() >= followUpAt;
  const beginRound = (): Promise<void> => {
    followUpAt = workSignal.since === null ? Infinity : clock.now() + followUpDelay;
    return workSignal.handle(async () => {
      round = new Round((await store.read.accounts()).map(({ id }) => id));
    });
  };
  const checkSlice = async (): Promise<void> => {
    if (round === null && mustBegin()) await beginRound();
    await round?.checkSlice(store, repairAll);
    if (round?.isOver) round = null;
  };
  return {
    name: "the self-check",
    pause: slicePause,
    nextAt: async () => {
      if (round !== null || workSignal.since !== null || late.size > 0) return -Infinity;
      const times = Object.values(await store.read.oldestDue()).map((at) => at ?? Infinity);
      return Math.min(followUpAt, ...times.map((at) => at + lateAfter));
    },
    onWork: (listener) => workSignal.listen(listener),
    run: async () => {
      await checkDue();
      await checkSlice();
    },
  };
}

type Late = { kind: keyof OldestDue; dueAt: Millis };

/** Returns the kinds of rows that are due for long although the node could take them. */
async function findLate(store: Store, clock: Clock, sender: Sender): Promise<Late[]> {
  if (!sender.couldSend()) return [];
  const oldest = await store.read.oldestDue();
  const before = (time: Millis): Late[] =>
    dueKinds.flatMap((kind) => {
      const dueAt = oldest[kind];
      return dueAt !== null && dueAt < time - lateAfter ? [{ kind, dueAt }] : [];
    });
  if (before(clock.now()).length === 0) return [];
  // Due times are in the time of the store, from which the clock of this node may differ.
  const { now } = await store.execute("listDue", { limit: 1 });
  return before(now);
}

/** One look at all accounts, in slices. */
class Round {
  readonly #accounts: readonly AccountId[];
  #account = 0;
  #part = 0;
  #after = "";
  /** The suspects of the last look at the present rows, as texts. They are looked at again. */
  #suspects: ReadonlySet<string> = new Set();

  constructor(accounts: readonly AccountId[]) {
    this.#accounts = accounts;
  }

  get isOver(): boolean {
    return this.#account >= this.#accounts.length;
  }

  async checkSlice(
    store: Store,
    repair: (account: AccountId, suspects: readonly Suspect[]) => Promise<void>,
  ): Promise<void> {
    for (let rows = 0, parts = 0; rows < sliceRows && parts < sliceParts && !this.isOver; parts++) {
      const account = this.#accounts[this.#account] ?? "";
      const part: CheckedPart = checkedParts[this.#part] ?? "waiters";
      const page = await store.read.suspects({ account, part, after: this.#after, limit: sliceRows });
      const found = new Set(page.suspects.map((suspect) => JSON.stringify(suspect)));
      const again = page.suspects.filter((suspect) => this.#suspects.has(JSON.stringify(suspect)));
      const isFirstLook = this.#suspects.size === 0;
      if (isFirstLook && found.size > 0) {
        this.#suspects = found;
        return;
      }
      await repair(account, again);
      this.#suspects = new Set();
      rows += page.seen;
      this.#advance(page.next);
    }
  }

  #advance(next: string | null): void {
    this.#after = next ?? "";
    if (next !== null) return;
    this.#part = (this.#part + 1) % checkedParts.length;
    if (this.#part === 0) this.#account++;
  }
}
