import { expect, test } from "vitest";
import type { AlarmClock } from "../../../src/engine/clock/clock.ts";
import { second } from "../../../src/engine/core/values/time.ts";
import { Pullers } from "../../../src/engine/delivery/pullers.ts";
import type { Store } from "../../../src/engine/store/store.ts";

const now = 1_800_000_000_000;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The clients on a node of a shared store that counts its calls. The test calls the alarms. */
function openPullers(findWork: (hosts: readonly string[]) => Promise<string[]>) {
  const alarms: { after: number; wake(): void }[] = [];
  const clock: AlarmClock = {
    now: () => now,
    sleep: () => Promise.resolve(),
    alarm: (after, wake) => {
      const alarm = { after, wake };
      alarms.push(alarm);
      return () => void alarms.splice(alarms.indexOf(alarm), 1);
    },
  };
  const reads: (readonly string[])[] = [];
  const served: string[] = [];
  let signal: (at: number) => void = () => undefined;
  const store = {
    onDue: (listener: (at: number) => void) => {
      signal = listener;
      return () => undefined;
    },
    execute: async (_name: string, { host }: { host: string }) => {
      served.push(host);
      return { areLeft: false, isPulled: true };
    },
    read: {
      pulledWork: async (hosts: readonly { account: string; host: string }[]) => {
        reads.push(hosts.map(({ host }) => host));
        return (await findWork(reads.at(-1) ?? [])).map((host) => ({ account: "acme", host }));
      },
    },
  } as unknown as Store;
  const pullers = new Pullers({ store, clock, region: "", newId: () => "", isShared: true });
  const pull = (host: string): void =>
    void pullers.pull({
      ...{ account: "acme", host, max: 1, wait: 60 * second, lease: second },
      hasLeft: new AbortController().signal,
    });
  const endPause = async (): Promise<void> => {
    for (const alarm of alarms.filter(({ after }) => after < second)) {
      alarms.splice(alarms.indexOf(alarm), 1);
      alarm.wake();
    }
    await turn();
  };
  return { pull, reads, served, signal: (at: number) => signal(at), endPause };
}

test("signals of other nodes cost one read in a pause, however many origins clients wait for", async () => {
  const hosts = Array.from({ length: 100 }, (_, at) => `worker-${at}.internal`);
  const { pull, reads, served, signal, endPause } = openPullers(async () => ["worker-7.internal"]);
  for (const host of [...hosts, ...hosts]) pull(host);
  await turn();
  expect(served.splice(0).toSorted()).toEqual(hosts.toSorted());
  for (let signals = 0; signals < 50; signals++) signal(now + signals);
  await endPause();
  expect(reads).toEqual([hosts]);
  expect(served).toEqual(["worker-7.internal"]);
  await endPause();
  expect(reads).toHaveLength(1);
});

test("a signal of work in the far future costs nothing", async () => {
  const { pull, reads, signal, endPause } = openPullers(async () => []);
  pull("worker.internal");
  await turn();
  signal(now + 30 * second);
  await endPause();
  expect(reads).toEqual([]);
  // The clock of the store may be some seconds ahead.
  signal(now + 5 * second);
  await endPause();
  expect(reads).toHaveLength(1);
});

test("a read that fails is repeated", async () => {
  let fails = true;
  const { pull, reads, served, signal, endPause } = openPullers(async (hosts) => {
    if (fails) throw new Error("unavailable");
    return [...hosts];
  });
  pull("worker.internal");
  await turn();
  served.length = 0;
  signal(now);
  await endPause();
  expect(served).toEqual([]);
  fails = false;
  await endPause();
  expect(reads).toHaveLength(2);
  expect(served).toEqual(["worker.internal"]);
});
