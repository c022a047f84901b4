import { Command, CommanderError } from "commander";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import { addClientCommands } from "./commands.ts";
import { linkDocumentation } from "./documentation.ts";
import { addNewCredentials, asksForNewCredentials } from "./newCredentials.ts";
import { toSafeLine } from "./terminal/safeText.ts";

// The package runs this file alone, before it loads the server, so that the commands for a running server
// start fast. It imports nothing of the server.

/**
 * Runs a command for a running server, or one that needs no server, and sets the exit code of the process.
 * Returns false, and does nothing, if the arguments name another command.
 */
export async function runClientCommand(
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
): Promise<boolean> {
  const program = new Command("waypost")
    .exitOverride()
    .showHelpAfterError("(waypost --help lists all commands)");
  if (asksForNewCredentials(args)) addNewCredentials(program, { environment });
  else addClientCommands(program, { environment });
  linkDocumentation(program);
  if (!program.commands.some((command) => command.name() === args[0])) return false;
  endWithReader();
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    process.exitCode = explainClientError(error);
  }
  return true;
}

/** Ends the process when the program that reads its output has ended, such as `head`. */
export function endWithReader(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    throw error;
  });
}

/** Prints why a command failed, and returns its exit code. */
function explainClientError(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
  const expected = error instanceof CommandFailed;
  const text =
    error instanceof Error ? (expected ? error.message : (error.stack ?? error.message)) : String(error);
  process.stderr.write(`waypost: ${expected ? toSafeLine(text) : text}\n`);
  return expected ? error.exitCode : exitCodes.failed;
}
