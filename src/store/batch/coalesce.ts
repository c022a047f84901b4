/** Runs something when the event loop has looked once more at what came in. */
export type Look = (run: () => void) => void;

/** That of Node, for a server. */
export const afterLook: Look = (run) => void setImmediate(run);

/** Looks in a row that bring nothing, and looks in all. */
const mostInVain = 2;
const most = 16;

/**
 * Begins when those who were about to ask have asked: two looks in a row have brought nothing more, or there have been sixteen. `count`:
 * how many have asked so far. A look that brings nothing takes some microseconds, the smallest batch some hundreds: see docs/decisions/0039.
 */
export function gather(look: Look, count: () => number, begin: () => void): void {
  let [looks, inVain, before] = [0, 0, count()];
  const goOn = (): void => {
    const now = count();
    inVain = now > before ? 0 : inVain + 1;
    before = now;
    if (inVain === mostInVain || ++looks === most) begin();
    else look(goOn);
  };
  look(goOn);
}
