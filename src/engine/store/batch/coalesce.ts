/** Runs a function after the event loop has polled for input one more time. */
export type AfterNextPoll = (run: () => void) => void;

/** The implementation of a server, on Node's event loop. */
export const afterNextPoll: AfterNextPoll = (run) => void setImmediate(run);

/** The maximum number of consecutive polls that bring no new call, and of polls in all. */
const maxIdlePolls = 2;
const maxPolls = 16;

/**
 * Calls `begin` once all callers that were about to make a call have made it: after two consecutive polls
 * without a new call, or after 16 polls. `count` returns the number of calls so far. A poll without new calls
 * takes a few microseconds, and the smallest batch takes a few hundred: see docs/decisions/0039.
 */
export function coalesce(afterPoll: AfterNextPoll, count: () => number, begin: () => void): void {
  let polls = 0;
  let idlePolls = 0;
  let previous = count();
  const poll = (): void => {
    const current = count();
    idlePolls = current > previous ? 0 : idlePolls + 1;
    previous = current;
    if (idlePolls === maxIdlePolls || ++polls === maxPolls) begin();
    else afterPoll(poll);
  };
  afterPoll(poll);
}
