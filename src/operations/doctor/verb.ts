import type { Command } from "commander";
import type { ExplainedSetting, ServerConfig } from "../../settings/config.ts";
import { diagnose, worstVerdict, writeBundle } from "./doctor.ts";
import type { Finding } from "./finding.ts";
import { explainEgress, type ServerReads } from "./egress.ts";

/** The parts of the command line that the command `doctor` uses. */
type DoctorTools<Flags> = {
  withAllFlags(command: Command): Command;
  readSettings(flags: Flags): ServerConfig;
  explain(flags: Flags): readonly ExplainedSetting[];
  runningServer: ServerReads;
  print(line: string): void;
};

/** Adds the command `doctor`, with `doctor egress`. */
export function addDoctorCommand<Flags>(
  program: Command,
  { withAllFlags, readSettings, explain, runningServer, print }: DoctorTools<Flags>,
): void {
  const report = (findings: readonly Finding[], { json }: { json?: true }): void => {
    const verdict = worstVerdict(findings);
    if (json) print(JSON.stringify({ verdict, findings }, null, 2));
    else for (const line of formatFindings(findings)) print(line);
    process.exitCode = verdict === "problem" ? 1 : 0;
  };
  const doctor = withAllFlags(
    program
      .command("doctor")
      .option("--json", "print JSON")
      .option("--bundle <file>", "also write a new file for a bug report, without payloads, tokens and keys")
      .description(
        "check the machine, the store and the running server, and change nothing; " +
          "exit code 1 if there is a problem, 2 if the settings cannot be used",
      ),
  ).action(async (flags: Flags & { json?: true; bundle?: string }) => {
    const settings = readSettings(flags);
    const findings =
      flags.bundle === undefined
        ? await diagnose(settings, runningServer)
        : await writeBundle(flags.bundle, { settings, ...runningServer, explained: explain(flags) });
    report(findings, flags);
  });
  withAllFlags(
    doctor
      .command("egress")
      .argument("<url>", "destination of a delivery")
      .option("--json", "print JSON")
      .description("look up the addresses of a destination, and connect to it without sending a request"),
  ).action(async (url: string, flags: Flags & { json?: true }) =>
    report(
      await explainEgress(url, { own: readSettings(flags), explained: explain(flags), runningServer }),
      flags,
    ),
  );
}

/** Returns a line for each finding, and one for each fix. */
function formatFindings(findings: readonly Finding[]): string[] {
  const width = Math.max(...findings.map(({ check }) => check.length));
  const count = (verdict: Finding["verdict"]): number =>
    findings.filter((finding) => finding.verdict === verdict).length;
  return [
    ...findings.flatMap(({ check, verdict, text, fix }) => [
      `${verdict.padEnd(7)}  ${check.padEnd(width)}  ${text}`,
      ...(fix === undefined ? [] : [`${" ".repeat(7)}  ${" ".repeat(width)}  fix: ${fix}`]),
    ]),
    `problems: ${count("problem")}, warnings: ${count("warning")}`,
  ];
}
