/** Ends a process that has taken more memory than it may. */
import { memory } from "./process-figures.ts";

/** `2G`, `512M` → bytes. Throws an error that says how a size is written. */
export function parseSize(size: string): number {
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?)([KMG]?)$/i.exec(size) ?? [];
  if (number === undefined) throw new Error(`--memory needs a size such as 2G or 512M, and got "${size}".`);
  return Number(number) * 2 ** { "": 0, K: 10, M: 20, G: 30 }[unit.toUpperCase() as "" | "K" | "M" | "G"];
}

/**
 * Looks at a process every 20 ms and kills it if its resident memory was ever above the limit (`VmHWM`, which the kernel keeps, so that a peak
 * between two looks counts). This represents the limit of a container. A limit on the address space (`ulimit -v`) does not suit
 * Node, which reserves far more than it uses.
 */
export class MemoryLimit {
  /** The most resident memory there was, in bytes. */
  highest = 0;
  /** Why the process is gone; null while it lives. */
  ended: "memory limit" | "by itself" | null = null;
  readonly #pid: number;
  readonly #limit: number;
  readonly #onEnd: () => void;
  readonly #timer: NodeJS.Timeout;

  constructor(pid: number, limit: number, onEnd: () => void) {
    this.#pid = pid;
    this.#limit = limit;
    this.#onEnd = onEnd;
    this.#timer = setInterval(() => this.#look(), 20);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const peak = readPeak(this.#pid);
    if (peak !== null) this.highest = Math.max(this.highest, peak);
    if (peak !== null && peak <= this.#limit) return;
    if (peak !== null) process.kill(this.#pid, "SIGKILL");
    this.ended = peak === null ? "by itself" : "memory limit";
    this.stop();
    this.#onEnd();
  }
}

/** Null if the process is gone. */
function readPeak(pid: number): number | null {
  try {
    const { peak } = memory(pid);
    return Number.isNaN(peak) ? null : peak;
  } catch {
    return null;
  }
}
