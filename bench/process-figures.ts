/** What Linux knows about a process, read from outside so that the process does nothing for it. */
import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks of `/proc/<pid>/stat` a second (`getconf CLK_TCK`): 100 on every Linux that Node runs on. */
const ticksPerSecond = 100;

/** User and system time of a process with all its threads, living and dead, in microseconds; exact to 10 ms. */
export function cpuTime(pid: number): number {
  const { user, system } = readStat(pid);
  return ((user + system) * 1e6) / ticksPerSecond;
}

/** The same of its children that have ended. */
export function readEndedCpuTime(pid: number): number {
  const { endedUser, endedSystem } = readStat(pid);
  return ((endedUser + endedSystem) * 1e6) / ticksPerSecond;
}

export const readParent = (pid: number): number => readStat(pid).parent;

/** Some fields of proc(5), the times in ticks. */
function readStat(pid: number) {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  // The name in brackets may contain spaces; the fields after it begin with the third, so utime (14) is the 12th.
  const fields = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .map(Number);
  const [parent = Number.NaN, user = 0, system = 0, endedUser = 0, endedSystem = 0] = [1, 11, 12, 13, 14].map((at) => fields[at]);
  return { parent, user, system, endedUser, endedSystem };
}

/** Memory in bytes: now, and the most there ever was. */
export type Memory = { resident: number; peak: number };

export function memory(pid: number): Memory {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  return { resident: field(status, "VmRSS") * 1024, peak: field(status, "VmHWM") * 1024 };
}

/** One thread: how often it was woken or set aside so far, and its CPU time in microseconds. */
export type Thread = { id: number; name: string; switches: number; cpu: number };

export function threads(pid: number): Thread[] {
  return readdirSync(`/proc/${pid}/task`).map((id) => {
    const status = readFileSync(`/proc/${pid}/task/${id}/status`, "latin1");
    const [ran] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, "latin1").split(" ");
    const switches = field(status, "voluntary_ctxt_switches") + field(status, "nonvoluntary_ctxt_switches");
    return { id: Number(id), name: /^Name:\s*(.*)$/m.exec(status)?.[1] ?? "", switches, cpu: Number(ran) / 1e3 };
  });
}

function field(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)?.[1] ?? Number.NaN);
}
