/** Kills a process that exceeds a memory limit. */
import { memory } from "./processFigures.ts";

/** Parses a size such as `2G` or `512M` into bytes. Throws an error that shows the accepted form. */
export function parseSize(size: string): number {
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?)([KMG]?)$/i.exec(size) ?? [];
  if (number === undefined)
    throw new Error(`--memory: "${size}" is not a size; use a value such as 2G or 512M.`);
  return Number(number) * 2 ** { "": 0, K: 10, M: 20, G: 30 }[unit.toUpperCase() as "" | "K" | "M" | "G"];
}

/**
 * Checks a process every 20 ms and kills it if its resident memory ever exceeded the limit. It reads `VmHWM`,
 * which the kernel keeps, so that peaks between two checks count. This imitates the limit of a container. A
 * limit on address space (`ulimit -v`) does not suit Node, which reserves far more than it uses.
 */
export class MemoryLimit {
  /** The peak resident memory, in bytes. */
  highest = 0;
  /** Why the process has gone, or null while it runs. */
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

/** Returns the peak memory, or null if the process has gone. */
function readPeak(pid: number): number | null {
  try {
    const { peak } = memory(pid);
    return Number.isNaN(peak) ? null : peak;
  } catch {
    return null;
  }
}
