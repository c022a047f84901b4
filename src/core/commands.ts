import { changeAccount, createAccount, deleteAccount, rotateKeys, rotateToken } from "./account.ts";
import { putAside } from "./aside.ts";
import { cancel } from "./cancel.ts";
import { claim, listDue, reclaim } from "./claim.ts";
import type { Decision } from "./command.ts";
import { deleteDeadLetters, retryDeadLetters } from "./dlq.ts";
import { pauseFlow, pinFlow, resetRate, resumeFlow, unpinFlow } from "./flowControl.ts";
import { addEndpoints, deleteGroup, removeEndpoints, setGroupHeaders } from "./group.ts";
import { publish } from "./publish.ts";
import { rewrite } from "./rewrite.ts";
import { deleteQueue, upsertQueue } from "./queue.ts";
import { expire, trim } from "./retention.ts";
import { changeSource, createSource, deleteSource, keepRejection, noteAcceptance } from "./source.ts";
import { cancelRuns, finishRun } from "./endRun.ts";
import { repeatFailureCallback, resumeRun } from "./resume.ts";
import { notify, wait } from "./wait.ts";
import { createToken, noteTokenUse, revokeToken } from "./token.ts";
import { createSchedule, deleteSchedule, pauseSchedule, resumeSchedule } from "./schedule.ts";
import { giveBack, renew, settle } from "./settle.ts";

/** Everything that can change anything. */
export const commands = {
  publish,
  claim,
  listDue,
  putAside,
  settle,
  renew,
  giveBack,
  reclaim,
  cancel,
  retryDeadLetters,
  deleteDeadLetters,
  ...{ createAccount, changeAccount, deleteAccount, rotateToken, rotateKeys },
  createSource,
  changeSource,
  deleteSource,
  keepRejection,
  noteAcceptance,
  ...{ expire, trim, rewrite },
  ...{ createToken, revokeToken, noteTokenUse },
  ...{ addEndpoints, removeEndpoints, setGroupHeaders, deleteGroup },
  ...{ upsertQueue, deleteQueue },
  ...{ pauseFlow, resumeFlow, pinFlow, unpinFlow, resetRate },
  createSchedule,
  deleteSchedule,
  pauseSchedule,
  resumeSchedule,
  ...{ finishRun, cancelRuns, wait, notify, resumeRun, repeatFailureCallback },
};

export type Commands = typeof commands;
export type CommandName = keyof Commands;
export type InputOf<N extends CommandName> = Commands[N] extends Decision<infer Input, infer _> ? Input : never;
export type AnswerOf<N extends CommandName> = Commands[N] extends Decision<infer _, infer Answer> ? Answer : never;
