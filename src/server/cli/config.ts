import type { Command } from "commander";
import type { ExplainedSetting } from "../../settings/config.ts";

/** The parts of the command line that `waypost config` uses. */
type ConfigTools<Flags> = {
  withAllFlags(command: Command): Command;
  explain(flags: Flags): readonly ExplainedSetting[];
  print(line: string): void;
};

/** Adds the command `config`. */
export function addConfigCommand<Flags>(
  program: Command,
  { withAllFlags, explain, print }: ConfigTools<Flags>,
): void {
  withAllFlags(
    program
      .command("config")
      .option("--json", "print JSON")
      .description("print every setting, its value and where it was set; secrets are hidden"),
  ).action((flags: Flags & { json?: true }) => {
    const settings = explain(flags);
    if (flags.json) return print(JSON.stringify(settings, null, 2));
    const rows = settings.map(({ name, value, from }) => [
      name,
      value === "" ? '""' : value,
      from ?? "default",
    ]);
    const widths = [0, 1].map((at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)));
    for (const [name = "", value = "", from = ""] of rows)
      print(`${name.padEnd(widths[0] ?? 0)}  ${value.padEnd(Math.min(widths[1] ?? 0, 40))}  ${from}`);
  });
}
