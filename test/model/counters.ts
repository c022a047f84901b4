import {
  accountGate,
  capacityGate,
  endpointGate,
  formatGate,
  keyGate,
  queueGate,
} from "../../src/engine/core/admission/gate.ts";
import type { MessageState } from "../../src/engine/core/model/messageState.ts";
import type { Limiter, QueueSlot } from "../../src/engine/core/model/limiter.ts";

// The invariant of the counters of all limiters (see `Gate` in `engine/core/admission/gate.ts`), computed
// from the rows alone.

/** The counters of a limiter. */
export type Counters = { running: number; waiting: number; waitingDownstream: number };

/** The rows from which the counters follow, and the limiters to check. */
export type CountedRows = {
  messages: readonly MessageState[];
  slots: readonly QueueSlot[];
  flows: readonly Limiter[];
  /** Returns the endpoint that a message is counted at. Defaults to the endpoint in its row. */
  endpointOf?: (state: MessageState) => string;
};

const none: Counters = { running: 0, waiting: 0, waitingDownstream: 0 };

const keyOf = (account: string, id: string): string => `${account}\n${id}`;

/**
 * Returns the counts that the limiters must have, by account and id. Limiters that count nothing are absent.
 */
function recount({
  messages,
  slots,
  endpointOf = ({ endpoint }) => endpoint,
}: CountedRows): Map<string, Counters> {
  const counters = new Map<string, Counters>();
  const count = (account: string, id: string, name: keyof Counters): void => {
    const before = counters.get(keyOf(account, id)) ?? none;
    counters.set(keyOf(account, id), { ...before, [name]: before[name] + 1 });
  };
  for (const { account, queue } of slots)
    if (queue !== "") count(account, formatGate(queueGate(queue)), "running");
  for (const state of messages) {
    const { account, leasedBy, flowControlKey, counted, countedToEndpoint, waitlist, host } = state;
    const key = flowControlKey === null ? null : formatGate(keyGate(flowControlKey));
    const inTotal = formatGate(accountGate);
    const endpoint = formatGate(endpointGate({ endpoint: endpointOf(state) }));
    if (leasedBy !== null && key !== null) count(account, key, "running");
    if (leasedBy !== null && countedToEndpoint) count(account, endpoint, "running");
    if (leasedBy !== null && counted) count(account, inTotal, "running");
    if (waitlist !== null && waitlist !== formatGate(capacityGate(host))) count(account, waitlist, "waiting");
    if ((waitlist === endpoint || waitlist === inTotal) && key !== null)
      count(account, key, "waitingDownstream");
    if (waitlist === inTotal && countedToEndpoint) count(account, endpoint, "waitingDownstream");
  }
  return counters;
}

/** Returns a string for each wrong counter of the limiters; an empty list if all are right. */
export function listWrongCounters(rows: CountedRows): string[] {
  const wrong: string[] = [];
  const expected = recount(rows);
  for (const { account, id, running, waiting, waitingDownstream = 0 } of rows.flows) {
    const counters = expected.get(keyOf(account, id)) ?? none;
    for (const [name, counted] of Object.entries({ running, waiting, waitingDownstream }))
      if (counted !== counters[name as keyof Counters])
        wrong.push(
          `${name} of ${id} in ${account}: ${counted} instead of ${counters[name as keyof Counters]}`,
        );
    // Limiters of endpoints exist only while they are in use, however many endpoints an account has.
    if (id.startsWith("endpoint:") && running + waiting + waitingDownstream === 0)
      wrong.push(`${id} in ${account}: counts nothing, but exists`);
    expected.delete(keyOf(account, id));
  }
  for (const [key, counters] of expected)
    wrong.push(`${key.replace("\n", " ")}: missing, must count ${JSON.stringify(counters)}`);
  return wrong;
}
