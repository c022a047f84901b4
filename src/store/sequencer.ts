/** Runs one thing after another, in the order in which they are asked. One that fails does not stop the next. */
export function createSequencer(): <T>(run: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (run) => {
    const running = last.then(run);
    last = running.catch(() => undefined);
    return running;
  };
}
