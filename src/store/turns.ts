/** Runs one thing after another, in the order in which they are asked. One that fails does not stop the next. */
export function turns(): <T>(run: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (run) => {
    const done = last.then(run);
    last = done.catch(() => undefined);
    return done;
  };
}
