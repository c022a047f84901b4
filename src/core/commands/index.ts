import {
  changeAccount,
  createAccount,
  deleteAccount,
  removeAccount,
  rotateKeys,
  rotateToken,
} from "./account.ts";
import {
  noteAlertOutcome,
  noteAlerts,
  removeAlerts,
  setAlerts,
  setServerAlerts,
  takeAlert,
} from "./alert.ts";
import { quarantine } from "./quarantine.ts";
import {
  audited,
  listFields,
  noteNamed,
  noteAccount,
  noteAccountChange,
  noteAlertSetting,
  noteChange,
  noteLimiter,
  noteMany,
} from "./audit.ts";
import { noteSpending } from "../accounts/budget.ts";
import { takeBurst } from "../accounts/requestRate.ts";
import { cancel } from "./cancel.ts";
import { claim, listDue, reclaim } from "./claim.ts";
import type { Decision } from "../decision/command.ts";
import { deleteDeadLetters, retryDeadLetters } from "../deadLetters/dlq.ts";
import { pauseLimiter, pinFlowControl, resetRate, resumeLimiter, unpinFlowControl } from "./flowControl.ts";
import { addEndpoints, deleteGroup, removeEndpoints, setGroupHeaders } from "./urlGroup.ts";
import { auditWords, continueJob, createJob, noteJob, removeJobs, stopJob } from "./job.ts";
import { publish } from "./publish.ts";
import { repair } from "./repair.ts";
import { rewrite } from "./rewrite.ts";
import { deleteQueue, upsertQueue } from "./queue.ts";
import { expire, trim } from "./retention.ts";
import { changeSource, createSource, deleteSource, keepRejection, noteAcceptance } from "./source.ts";
import { cancelRuns, finishRun } from "../workflows/end.ts";
import { replayDeadLetter } from "../deadLetters/replay.ts";
import { repeatFailureCallback, resumeRun } from "../deadLetters/resume.ts";
import { notify, wait } from "../workflows/wait.ts";
import { noteStorage } from "../accounts/storageQuota.ts";
import { takeOver } from "../nodes/takeover.ts";
import { closeSession, openSession } from "./session.ts";
import { createToken, noteTokenUse, revokeToken } from "./token.ts";
import { changeSchedule } from "./changeSchedule.ts";
import { createSchedule, deleteSchedule, pauseSchedule, resumeSchedule } from "./schedule.ts";
import { wakeHostWaitlists } from "../admission/waitlist.ts";
import { returnLeases, renew } from "./leases.ts";
import { runSchedule } from "./runSchedule.ts";
import { sendNow } from "./sendNow.ts";
import { settle } from "./settle.ts";

/** All commands. The audit log records those that are wrapped in `audited`. */
export const commands = {
  publish,
  claim,
  listDue,
  quarantine,
  settle,
  renew,
  returnLeases,
  wakeHostWaitlists,
  reclaim,
  takeOver,
  keepRejection,
  noteAcceptance,
  expire,
  trim,
  removeAccount,
  rewrite,
  noteTokenUse,
  noteSpending,
  noteStorage,
  takeBurst,
  finishRun,
  wait,
  notify,
  continueJob,
  noteJob,
  removeJobs,
  noteAlerts,
  takeAlert,
  noteAlertOutcome,
  removeAlerts,
  repair: audited(repair, ({ suspect }, { repaired }) =>
    repaired ? { what: `repair.${suspect.kind}`, object: suspect.id } : null,
  ),
  ...messageCommands(),
  ...accountCommands(),
  ...setUpCommands(),
  ...limiterCommands(),
};

function messageCommands() {
  return {
    cancel: audited(
      cancel,
      noteMany(
        "message.cancel",
        ({ messageIds }) => messageIds,
        ({ cancelled }) => cancelled,
      ),
    ),
    sendNow: audited(sendNow, ({ messageId }) => ({ what: "message.sendNow", object: messageId })),
    cancelRuns: audited(
      cancelRuns,
      noteMany(
        "run.cancel",
        ({ runIds }) => runIds,
        ({ cancelled }) => cancelled,
      ),
    ),
    retryDeadLetters: audited(
      retryDeadLetters,
      noteMany(
        "dlq.retry",
        ({ dlqIds }) => dlqIds,
        ({ length }) => length,
      ),
    ),
    createJob: audited(createJob, ({ action }, { id }) => ({ what: auditWords[action], object: id })),
    stopJob: audited(stopJob, ({ id }, answer) =>
      answer?.stopped ? { what: "job.stop", object: id, count: answer.job.done } : null,
    ),
    replayDeadLetter: audited(replayDeadLetter, ({ dlqId, change, overrides }) => ({
      what: "dlq.replay",
      object: dlqId,
      fields: listFields({ ...change, ...overrides }),
    })),
    deleteDeadLetters: audited(
      deleteDeadLetters,
      noteMany(
        "dlq.delete",
        ({ dlqIds }) => dlqIds,
        ({ deleted }) => deleted,
      ),
    ),
    resumeRun: audited(resumeRun, ({ from, dlqId }) => ({
      what: from === "failure" ? "dlq.resume" : "dlq.restart",
      object: dlqId,
    })),
    repeatFailureCallback: audited(repeatFailureCallback, ({ dlqId }) => ({
      what: "dlq.callback",
      object: dlqId,
    })),
  };
}

function accountCommands() {
  return {
    createAccount: audited(createAccount, noteAccount("account.create")),
    changeAccount: audited(changeAccount, ({ change }) => noteAccountChange(change)),
    deleteAccount: audited(deleteAccount, noteAccount("account.delete")),
    rotateToken: audited(rotateToken, noteAccount("token.rotate")),
    rotateKeys: audited(rotateKeys, noteAccount("signingKey.rotate")),
    createToken: audited(createToken, (_, { id }) => ({ what: "token.create", object: id })),
    revokeToken: audited(revokeToken, ({ id }, { revoked }) =>
      revoked ? { what: "token.revoke", object: id } : null,
    ),
    setAlerts: audited(setAlerts, noteAlertSetting),
    setServerAlerts: audited(setServerAlerts, noteAlertSetting),
    openSession: audited(openSession, noteAccount("session.open")),
    closeSession: audited(closeSession, noteAccount("session.close")),
  };
}

function setUpCommands() {
  return {
    createSource: audited(createSource, (_, { id }) => ({ what: "source.create", object: id })),
    changeSource: audited(changeSource, noteChange("source.change")),
    deleteSource: audited(deleteSource, noteNamed("source.delete")),
    addEndpoints: audited(addEndpoints, ({ name, endpoints }) => ({
      what: "group.addEndpoints",
      object: name,
      count: endpoints.length,
    })),
    removeEndpoints: audited(removeEndpoints, ({ name }, { removed }) =>
      removed === 0 ? null : { what: "group.removeEndpoints", object: name, count: removed },
    ),
    setGroupHeaders: audited(setGroupHeaders, noteNamed("group.setHeaders")),
    deleteGroup: audited(deleteGroup, noteNamed("group.delete")),
    createSchedule: audited(createSchedule, (_, { scheduleId, deduplicated }) =>
      deduplicated ? null : { what: "schedule.create", object: scheduleId },
    ),
    changeSchedule: audited(changeSchedule, ({ id, change, overrides }) => ({
      what: "schedule.change",
      object: id,
      fields: listFields({ ...change, ...overrides }),
    })),
    deleteSchedule: audited(deleteSchedule, noteNamed("schedule.delete")),
    pauseSchedule: audited(pauseSchedule, noteNamed("schedule.pause")),
    resumeSchedule: audited(resumeSchedule, noteNamed("schedule.resume")),
    runSchedule: audited(runSchedule, ({ id }, { messages }) => ({
      what: "schedule.run",
      object: id,
      count: messages.length,
    })),
  };
}

function limiterCommands() {
  return {
    upsertQueue: audited(upsertQueue, noteNamed("queue.set")),
    deleteQueue: audited(deleteQueue, noteNamed("queue.delete")),
    pauseLimiter: audited(pauseLimiter, noteLimiter("pause")),
    resumeLimiter: audited(resumeLimiter, noteLimiter("resume")),
    pinFlowControl: audited(pinFlowControl, noteNamed("flowControl.pin")),
    unpinFlowControl: audited(unpinFlowControl, noteNamed("flowControl.unpin")),
    resetRate: audited(resetRate, noteNamed("flowControl.reset")),
  };
}

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

/** Commands that the server runs by itself. All others are requests of a caller who waits for the answer. */
const internalCommands: ReadonlySet<CommandName> = new Set<CommandName>([
  "claim",
  "listDue",
  "quarantine",
  "settle",
  "renew",
  "returnLeases",
  "wakeHostWaitlists",
  "reclaim",
  "takeOver",
  "expire",
  "trim",
  "removeAccount",
  "rewrite",
  "noteTokenUse",
  "noteSpending",
  "noteStorage",
  "noteAcceptance",
  "continueJob",
  "noteJob",
  "removeJobs",
  "noteAlerts",
  "takeAlert",
  "noteAlertOutcome",
  "removeAlerts",
  "repair",
]);

/**
 * Reports whether a caller waits for the answer of this command, so that it may be refused if the storage
 * does not answer in time.
 */
export const hasCaller = (name: CommandName): boolean => !internalCommands.has(name);

/** Commands that change accounts or credentials. */
const accountCommandNames: ReadonlySet<CommandName> = new Set<CommandName>([
  "createAccount",
  "changeAccount",
  "deleteAccount",
  "removeAccount",
  "rotateToken",
  "revokeToken",
  "noteStorage",
  "setAlerts",
  "setServerAlerts",
]);

/** Reports whether a command changes accounts or credentials, which nodes keep in memory. */
export const changesAccounts = (name: CommandName): boolean => accountCommandNames.has(name);
