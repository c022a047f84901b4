import { cpuTime } from "./process-figures.ts";

/** A server under test: something that takes a publish and calls the sink. */
export type Server = {
  name: string;
  pid: number;
  port: number;
  token: string;
  /** Messages accepted and not settled; null when the server keeps no such figure, as when it stores nothing. */
  unsettled(): Promise<number | null>;
  stop(): Promise<void>;
};

/** Waits until the server has used next to no CPU for 200 ms, at most `patience` milliseconds, so that nobody pays for another's tail. */
export async function quiet(pid: number, patience = 5_000): Promise<void> {
  const deadline = performance.now() + patience;
  for (let before = cpuTime(pid); performance.now() < deadline;) {
    await pause(200);
    const now = cpuTime(pid);
    if (now - before <= 10_000) return;
    before = now;
  }
}

/** Sleeps for so many milliseconds. */
export function pause(time: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, time));
}
