import { engineCommands } from "../../core/commands/index.ts";
import type { Decision } from "../../core/decision/command.ts";
import { operations } from "../../../operations/stored.ts";

/** All commands: those of the engine, and those of the operations. */
export const commands = { ...engineCommands, ...operations.commands };

/** The commands by name. */
export type Commands = typeof commands;
/** The name of a command. */
export type CommandName = keyof Commands;
/** The input of a command. */
export type CommandInput<N extends CommandName> =
  Commands[N] extends Decision<infer Input, infer _> ? Input : never;
/** The result of a command. */
export type CommandResult<N extends CommandName> =
  Commands[N] extends Decision<infer _, infer Answer> ? Answer : never;

const find = (name: CommandName): Decision<never, unknown> => commands[name];

/**
 * Reports whether a caller waits for the answer of this command, so that it may be refused if the storage
 * does not answer in time.
 */
export const hasCaller = (name: CommandName): boolean => find(name).isInternal !== true;

/** Reports whether a command changes accounts or credentials, which nodes keep in memory. */
export const changesAccounts = (name: CommandName): boolean => find(name).changesAccounts === true;
