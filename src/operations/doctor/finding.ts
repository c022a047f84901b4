/**
 * The verdict of a check. `warning`: look at it. `problem`: repair it. `skipped`: the check did not run,
 * because it does not apply.
 */
export type Verdict = "ok" | "warning" | "problem" | "skipped";

/** The result of a check. `fix` is a command or a setting that repairs it. */
export type Finding = { check: string; verdict: Verdict; text: string; fix?: string };

/** The result of a check, before the name of the check is added. */
export type CheckResult = Omit<Finding, "check">;

/** A check by name. It changes nothing. */
export type Check = { name: string; run(): Promise<CheckResult> | CheckResult };

export const ok = (text: string): CheckResult => ({ verdict: "ok", text });
export const skipped = (text: string): CheckResult => ({ verdict: "skipped", text });
export const warning = (text: string, fix: string): CheckResult => ({ verdict: "warning", text, fix });
export const problem = (text: string, fix: string): CheckResult => ({ verdict: "problem", text, fix });

/** Runs checks one after another. A check that throws has found a problem. */
export async function runChecks(checks: readonly Check[]): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const { name, run } of checks) {
    const found = await Promise.resolve()
      .then(run)
      .catch((error: unknown): CheckResult => ({ verdict: "problem", text: toErrorText(error) }));
    findings.push({ check: name, ...found });
  }
  return findings;
}

/** Returns the text of an error, or its code if it has no text. */
export function toErrorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.message || String(Reflect.get(error, "code") ?? error.name);
}

/** Returns a number of bytes as people read it. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

/** Returns a time in milliseconds as people read it. */
export function formatSpan(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 1) return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
