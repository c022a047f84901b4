import type { Command } from "commander";
import type { ClientContext } from "./api.ts";
import { addApplyCommand } from "./apply.ts";
import { addConnectCommand } from "./connect.ts";
import { addDeadLetterCommands } from "./deadLetters.ts";
import { addJobCommands } from "../operations/jobs/verbs.ts";
import { addLogCommand } from "./logs.ts";
import { addLoginCommands } from "./login.ts";
import { addMessageCommands } from "./messages.ts";
import { addOutboxCommands } from "../operations/outbox/verbs.ts";
import { addPublishCommands } from "./publish.ts";
import { addPulledCommands } from "./pulled.ts";
import { addResourceCommands } from "./resources.ts";
import { addRunCommands } from "./runs.ts";
import { addSearchCommand } from "../operations/search/verbs.ts";
import { addSituationCommands } from "./situation.ts";

/** Adds all commands that speak to a running server. They use nothing but its public API. */
export function addClientCommands(program: Command, context: ClientContext): void {
  program.commandsGroup("Commands for a running server, local or remote:");
  addLoginCommands(program, context);
  addSituationCommands(program, context);
  addSearchCommand(program, context);
  addMessageCommands(program, context);
  addDeadLetterCommands(program, context);
  addRunCommands(program, context);
  addJobCommands(program, context);
  addLogCommand(program, context);
  addOutboxCommands(program, context);
  addResourceCommands(program, context);
  addPulledCommands(program, context);
  addConnectCommand(program, context);
  addPublishCommands(program, context);
  addApplyCommand(program, context);
}
