import type { Change, Changes, Tables } from "../storage/changes.ts";
import type { AssertHolds } from "./observedBatch.ts";

/** Returns the name under which what goes to a host is counted. */
const makeLane = (account: string, host: string): string => `${account} ${host}`;

/** Checks that hosts for which messages wait have a waitlist. */
export class HostWaitlistChecker {
  /** Messages that wait for delivery capacity, by lane. */
  readonly #held = new Map<string, Set<string>>();

  noteState({ before, after }: Change<"messages">): void {
    const row = after ?? before;
    if (!row) return;
    const lane = makeLane(row.account, row.host);
    const held = this.#held.get(lane) ?? new Set();
    if (after?.waitlist?.startsWith("capacity:")) this.#held.set(lane, held.add(row.id));
    else held.delete(row.id);
  }

  /** Checks that waitlists of hosts with held messages are registered. */
  check(changes: Changes, { hostWaitlists }: Tables, assertHolds: AssertHolds): void {
    const lanes = [
      ...changes.messages.flatMap(({ before, after }) => after ?? before ?? []),
      ...changes.hostWaitlists.flatMap(({ before, after }) => after ?? before ?? []),
    ];
    for (const { account, host } of lanes) {
      const held = this.#held.get(makeLane(account, host))?.size ?? 0;
      assertHolds(
        held === 0 || hostWaitlists.has(`${account}\n${host}`),
        `held messages have a waitlist: ${held} to ${host}`,
      );
    }
  }
}
