/** Figures of a process that Linux reports, read from outside so that the process does no work for them. */
import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks per second in `/proc/<pid>/stat` (`getconf CLK_TCK`): 100 on every Linux that Node runs on. */
const ticksPerSecond = 100;

/**
 * Returns the user and system time of a process with all its threads, including ended ones, in microseconds.
 * It is exact to 10 ms.
 */
export function cpuTime(pid: number): number {
  const { user, system } = readStat(pid);
  return ((user + system) * 1e6) / ticksPerSecond;
}

/** Returns the CPU time of the ended children of a process, in microseconds. */
export function readEndedCpuTime(pid: number): number {
  const { endedUser, endedSystem } = readStat(pid);
  return ((endedUser + endedSystem) * 1e6) / ticksPerSecond;
}

/**
 * Starts to measure the CPU time of a process. The returned function returns the CPU time since then, in
 * microseconds. It is exact, unless a thread has ended: then it is exact to 20 ms.
 */
export function startCpuClock(pid: number): () => number {
  const ticksBefore = cpuTime(pid);
  const before = readThreadTimes(pid);
  return () => {
    const now = readThreadTimes(pid);
    if ([...before.keys()].some((id) => !now.has(id))) return cpuTime(pid) - ticksBefore;
    return [...now].reduce((sum, [id, cpu]) => sum + cpu - (before.get(id) ?? 0), 0);
  };
}

/** Returns the CPU time of each living thread in microseconds, by its id. */
function readThreadTimes(pid: number): Map<string, number> {
  const times = new Map<string, number>();
  for (const id of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [ran] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, "latin1").split(" ");
      times.set(id, Number(ran) / 1e3);
    } catch {
      // The thread has just ended.
    }
  }
  return times;
}

/** Returns the bytes that a process has written to disks. They count when they are in the page cache. */
export const writtenBytes = (pid: number): number =>
  Number(/^write_bytes:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"))?.[1] ?? Number.NaN);

/** Returns the id of a process's parent. */
export const readParent = (pid: number): number => readStat(pid).parent;

/** Reads some fields of proc(5). Times are in ticks. */
function readStat(pid: number) {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  // The name in parentheses may contain spaces. The fields after it start with the third, so utime (14) is
  // the 12th.
  const fields = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .map(Number);
  const [parent = Number.NaN, user = 0, system = 0, endedUser = 0, endedSystem = 0] = [1, 11, 12, 13, 14].map(
    (at) => fields[at],
  );
  return { parent, user, system, endedUser, endedSystem };
}

/** Resident memory in bytes: current and peak. */
export type Memory = { resident: number; peak: number };

/** Returns the resident memory of a process. */
export function memory(pid: number): Memory {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  return { resident: field(status, "VmRSS") * 1024, peak: field(status, "VmHWM") * 1024 };
}

/** A thread: its context switches so far, and its CPU time in microseconds. */
export type Thread = { id: number; name: string; switches: number; cpu: number };

/** Returns the threads of a process. */
export function threads(pid: number): Thread[] {
  return readdirSync(`/proc/${pid}/task`).map((id) => {
    const status = readFileSync(`/proc/${pid}/task/${id}/status`, "latin1");
    const [ran] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, "latin1").split(" ");
    const switches = field(status, "voluntary_ctxt_switches") + field(status, "nonvoluntary_ctxt_switches");
    return {
      id: Number(id),
      name: /^Name:\s*(.*)$/m.exec(status)?.[1] ?? "",
      switches,
      cpu: Number(ran) / 1e3,
    };
  });
}

function field(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)?.[1] ?? Number.NaN);
}
