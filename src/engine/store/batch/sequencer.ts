/**
 * Returns a function that runs asynchronous tasks one after another, in the order of the calls. A task that
 * fails does not stop the next one.
 */
export function createSequencer(): <T>(run: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (run) => {
    const running = last.then(run);
    last = running.catch(() => undefined);
    return running;
  };
}
