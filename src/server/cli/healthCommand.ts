import type { Command } from "commander";
import type { HealthFlags } from "../../../launch/health.cjs";
import { checkHealth } from "../../../launch/health.cjs";

/** Adds the command `health`. */
export function addHealthCommand(program: Command, environment: NodeJS.ProcessEnv): void {
  program
    .command("health")
    .description("ask a server whether it can take requests; exit code 0 if it can, 1 if it cannot")
    .option("--url <url>", "address of the server; default: made of --host and --port")
    .option("--host <address>", "address that the server listens on\n(WAYPOST_HOST, default 127.0.0.1)")
    .option("--port <n>", "port that the server listens on\n(WAYPOST_PORT, default 8080)")
    .action(async (flags: HealthFlags) => {
      process.exitCode = await checkHealth(flags, environment);
    });
}
