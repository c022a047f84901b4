/** Runs something when the event loop has looked once more at what came in. */
export type AfterNextPoll = (run: () => void) => void;

/** That of Node, for a server. */
export const afterNextPoll: AfterNextPoll = (run) => void setImmediate(run);

/** Looks in a row that bring nothing, and looks in all. */
const maxIdlePolls = 2;
const maxPolls = 16;

/**
 * Begins when those who were about to ask have asked: two looks in a row have brought nothing more, or there have been sixteen. `count`:
 * how many have asked so far. A look that brings nothing takes some microseconds, the smallest batch some hundreds: see docs/decisions/0039.
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
