import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer, portOf } from "../testServer.ts";

/** The time within which every request is answered, in milliseconds. */
export const limit = 15_000;

/** Alarms whose time passes in steps of the test. */
export class SteppedAlarms {
  #passed = 0;
  readonly elapsed = (): number => this.#passed;
  readonly #open = new Set<{ left: number; wake: () => void }>();

  readonly alarm = (after: number, wake: () => void): (() => void) => {
    const entry = { left: after, wake };
    this.#open.add(entry);
    return () => this.#open.delete(entry);
  };

  get count(): number {
    return this.#open.size;
  }

  /**
   * Lets time pass in steps until something has ended, or a limit has passed. Returns how much has passed, in
   * milliseconds.
   */
  async until(ended: Promise<unknown>, { step = 100, max = 2 * limit } = {}): Promise<number> {
    let isOver = false;
    void ended.then(() => (isOver = true));
    for (let passed = 0; ; passed += step) {
      // The requests of the test reach the server in real time.
      for (let turn = 0; turn < 5 && !isOver; turn++) await new Promise((resolve) => setTimeout(resolve, 1));
      if (isOver || passed > max) return passed;
      this.#pass(step);
    }
  }

  #pass(time: number): void {
    this.#passed += time;
    for (const entry of this.#open) if ((entry.left -= time) <= 0 && this.#open.delete(entry)) entry.wake();
  }
}

/** Returns a server of which a part never answers after `hangUp`. */
export async function hangingServer(hang: (store: Store) => Partial<Store>, fastPath: boolean) {
  let isHanging = false;
  const alarms = new SteppedAlarms();
  const server = await createTestServer({
    alarm: alarms.alarm,
    elapsed: alarms.elapsed,
    fastPath,
    wrap: (store) =>
      new Proxy(store, {
        get: (target, name, receiver) =>
          (isHanging && Reflect.get(hang(target), name)) || Reflect.get(target, name, receiver),
      }),
  });
  return { ...server, alarms, port: await portOf(server.api), hangUp: () => (isHanging = true) };
}
