import { createAccount, rotateKeys } from "./account.ts";
import { cancel } from "./cancel.ts";
import { claim, reclaim } from "./claim.ts";
import type { Decision } from "./command.ts";
import { deleteDeadLetters, retryDeadLetters } from "./dlq.ts";
import { publish } from "./publish.ts";
import { expire } from "./retention.ts";
import { giveBack, renew, settle } from "./settle.ts";

/** Everything that can change anything. */
export const commands = {
  publish,
  claim,
  settle,
  renew,
  giveBack,
  reclaim,
  cancel,
  retryDeadLetters,
  deleteDeadLetters,
  createAccount,
  rotateKeys,
  expire,
};

export type Commands = typeof commands;
export type CommandName = keyof Commands;
export type InputOf<N extends CommandName> = Commands[N] extends Decision<infer Input, infer _> ? Input : never;
export type AnswerOf<N extends CommandName> = Commands[N] extends Decision<infer _, infer Answer> ? Answer : never;
