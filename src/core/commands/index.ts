import { changeAccount, createAccount, deleteAccount, removeAccount, rotateKeys, rotateToken } from "./account.ts";
import { putAside } from "./quarantine.ts";
import { audited, noteOf, noteOfAccount, noteOfAccountChange, noteOfChange, noteOfFlow, noteOfMany } from "./audit.ts";
import { noteSpending } from "../accounts/budget.ts";
import { takeBurst } from "../accounts/requestRate.ts";
import { cancel } from "./cancel.ts";
import { claim, listDue, reclaim } from "./claim.ts";
import type { Decision } from "../decision/command.ts";
import { deleteDeadLetters, retryDeadLetters } from "./dlq.ts";
import { pauseFlow, pinFlow, resetRate, resumeFlow, unpinFlow } from "./flowControl.ts";
import { addEndpoints, deleteGroup, removeEndpoints, setGroupHeaders } from "./urlGroup.ts";
import { publish } from "./publish.ts";
import { rewrite } from "./rewrite.ts";
import { deleteQueue, upsertQueue } from "./queue.ts";
import { expire, trim } from "./retention.ts";
import { changeSource, createSource, deleteSource, keepRejection, noteAcceptance } from "./source.ts";
import { cancelRuns, finishRun } from "../workflows/end.ts";
import { repeatFailureCallback, resumeRun } from "./resume.ts";
import { notify, wait } from "../workflows/wait.ts";
import { noteStorage } from "../accounts/storageQuota.ts";
import { takeOver } from "../nodes/takeover.ts";
import { createToken, noteTokenUse, revokeToken } from "./token.ts";
import { createSchedule, deleteSchedule, pauseSchedule, resumeSchedule } from "./schedule.ts";
import { wakeHostWaitlists } from "../admission/waitlist.ts";
import { giveBack, renew, settle } from "./settle.ts";

/** Everything that can change anything. What people do to their settings, or to many things at once, says who they are. */
export const commands = {
  publish,
  claim,
  listDue,
  putAside,
  settle,
  renew,
  giveBack,
  wakeLines: wakeHostWaitlists,
  reclaim,
  takeOver,
  keepRejection,
  noteAcceptance,
  ...{ expire, trim, removeAccount, rewrite, noteTokenUse, noteSpending, noteStorage, takeBurst },
  ...{ finishRun, wait, notify },
  ...ofMessages(),
  ...ofAccounts(),
  ...ofSetUp(),
  ...ofFlows(),
};

function ofMessages() {
  return {
    cancel: audited(
      cancel,
      noteOfMany(
        "message.cancel",
        ({ messageIds }) => messageIds,
        ({ cancelled }) => cancelled,
      ),
    ),
    cancelRuns: audited(
      cancelRuns,
      noteOfMany(
        "run.cancel",
        ({ runIds }) => runIds,
        ({ cancelled }) => cancelled,
      ),
    ),
    retryDeadLetters: audited(
      retryDeadLetters,
      noteOfMany(
        "dlq.retry",
        ({ dlqIds }) => dlqIds,
        ({ length }) => length,
      ),
    ),
    deleteDeadLetters: audited(
      deleteDeadLetters,
      noteOfMany(
        "dlq.delete",
        ({ dlqIds }) => dlqIds,
        ({ deleted }) => deleted,
      ),
    ),
    resumeRun: audited(resumeRun, ({ from, dlqId }) => ({ what: from === "failure" ? "dlq.resume" : "dlq.restart", object: dlqId })),
    repeatFailureCallback: audited(repeatFailureCallback, ({ dlqId }) => ({ what: "dlq.callback", object: dlqId })),
  };
}

function ofAccounts() {
  return {
    createAccount: audited(createAccount, noteOfAccount("account.create")),
    changeAccount: audited(changeAccount, ({ change }) => noteOfAccountChange(change)),
    deleteAccount: audited(deleteAccount, noteOfAccount("account.delete")),
    rotateToken: audited(rotateToken, noteOfAccount("token.rotate")),
    rotateKeys: audited(rotateKeys, noteOfAccount("signingKey.rotate")),
    createToken: audited(createToken, (_, { id }) => ({ what: "token.create", object: id })),
    revokeToken: audited(revokeToken, ({ id }, { revoked }) => (revoked ? { what: "token.revoke", object: id } : null)),
  };
}

function ofSetUp() {
  return {
    createSource: audited(createSource, (_, { id }) => ({ what: "source.create", object: id })),
    changeSource: audited(changeSource, noteOfChange("source.change")),
    deleteSource: audited(deleteSource, noteOf("source.delete")),
    addEndpoints: audited(addEndpoints, ({ name, endpoints }) => ({ what: "group.addEndpoints", object: name, count: endpoints.length })),
    removeEndpoints: audited(removeEndpoints, ({ name }, { removed }) =>
      removed === 0 ? null : { what: "group.removeEndpoints", object: name, count: removed },
    ),
    setGroupHeaders: audited(setGroupHeaders, noteOf("group.setHeaders")),
    deleteGroup: audited(deleteGroup, noteOf("group.delete")),
    createSchedule: audited(createSchedule, (_, { scheduleId, deduplicated }) =>
      deduplicated ? null : { what: "schedule.create", object: scheduleId },
    ),
    deleteSchedule: audited(deleteSchedule, noteOf("schedule.delete")),
    pauseSchedule: audited(pauseSchedule, noteOf("schedule.pause")),
    resumeSchedule: audited(resumeSchedule, noteOf("schedule.resume")),
  };
}

function ofFlows() {
  return {
    upsertQueue: audited(upsertQueue, noteOf("queue.set")),
    deleteQueue: audited(deleteQueue, noteOf("queue.delete")),
    pauseFlow: audited(pauseFlow, noteOfFlow("pause")),
    resumeFlow: audited(resumeFlow, noteOfFlow("resume")),
    pinFlow: audited(pinFlow, noteOf("flowControl.pin")),
    unpinFlow: audited(unpinFlow, noteOf("flowControl.unpin")),
    resetRate: audited(resetRate, noteOf("flowControl.reset")),
  };
}

export type Commands = typeof commands;
export type CommandName = keyof Commands;
export type InputOf<N extends CommandName> = Commands[N] extends Decision<infer Input, infer _> ? Input : never;
export type AnswerOf<N extends CommandName> = Commands[N] extends Decision<infer _, infer Answer> ? Answer : never;

/** Commands that the server runs by itself. All others are requests of a caller who waits for the answer. */
const withoutCaller: ReadonlySet<CommandName> = new Set([
  ...(["claim", "listDue", "putAside", "settle", "renew", "giveBack", "wakeLines", "reclaim", "takeOver"] as const),
  ...(["expire", "trim", "removeAccount", "rewrite", "noteTokenUse", "noteSpending", "noteAcceptance"] as const),
]);

/** Reports whether a caller waits for the answer of this command, so that it may be refused if the storage does not answer in time. */
export const hasCaller = (name: CommandName): boolean => !withoutCaller.has(name);
