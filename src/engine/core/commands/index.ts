import { bulk, noteBulk } from "./bulk.ts";
import { accountChange, internal } from "./kinds.ts";
import {
  changeAccount,
  createAccount,
  deleteAccount,
  removeAccount,
  rotateKeys,
  rotateToken,
} from "./account.ts";
import { quarantine } from "./quarantine.ts";
import {
  audited,
  listFields,
  noteNamed,
  noteAccount,
  noteAccountChange,
  noteLimiter,
  noteMany,
} from "./audit.ts";
import { addPulledOrigin, removePulledOrigin, servePullers } from "./pulledOrigins.ts";
import { recordSpending } from "./recordUsage.ts";
import { takeBurst } from "./takeBurst.ts";
import { cancel } from "../sending/cancel.ts";
import { endAttempts } from "./endAttempts.ts";
import { extendAttempt, reportAttempt } from "./reportAttempt.ts";
import { claim, listDue, reclaim } from "./claim.ts";
import { retryDeadLetters } from "../deadLetters/dlq.ts";
import { pauseLimiter, pinFlowControl, resetRate, resumeLimiter, unpinFlowControl } from "./flowControl.ts";
import { addEndpoints, deleteGroup, removeEndpoints, setGroupHeaders } from "./urlGroup.ts";
import { publish } from "./publish.ts";
import { rewrite } from "./rewrite.ts";
import { deleteQueue, upsertQueue } from "./queue.ts";
import { expire } from "./expireHistory.ts";
import { trim } from "./trim.ts";
import { cancelRuns } from "../workflows/end.ts";
import { finishRun } from "./finishRun.ts";
import { replayDeadLetter } from "./replayDeadLetter.ts";
import { resumeRun } from "../deadLetters/resume.ts";
import { repeatFailureCallback } from "./repeatFailureCallback.ts";
import { notify } from "./notify.ts";
import { wait } from "./wait.ts";
import { recordStorage } from "./recordUsage.ts";
import { tagCauses } from "./tagCauses.ts";
import { takeOver } from "./takeOver.ts";
import { createToken, noteTokenUse, revokeToken } from "./token.ts";
import { changeSchedule } from "./changeSchedule.ts";
import { createSchedule, deleteSchedule, pauseSchedule, resumeSchedule } from "./schedule.ts";
import { wakeHostWaitlists } from "./wakeHostWaitlists.ts";
import { returnLeases, renew } from "./leases.ts";
import { runSchedule } from "./runScheduleNow.ts";
import { runOnStep } from "./runOnStep.ts";
import { sendNow } from "./sendNow.ts";
import { settle } from "./settle.ts";

/**
 * The commands of the engine. The audit log records those that are wrapped in `audited`, and nobody waits for
 * the answers of those that are wrapped in `internal`.
 */
export const engineCommands = {
  publish,
  claim: internal(claim),
  listDue: internal(listDue),
  quarantine: internal(quarantine),
  settle: internal(settle),
  renew: internal(renew),
  returnLeases: internal(returnLeases),
  wakeHostWaitlists: internal(wakeHostWaitlists),
  servePullers: internal(servePullers),
  reclaim: internal(reclaim),
  takeOver: internal(takeOver),
  expire: internal(expire),
  trim: internal(trim),
  removeAccount: internal(accountChange(removeAccount)),
  rewrite: internal(rewrite),
  tagCauses: internal(tagCauses),
  noteTokenUse: internal(noteTokenUse),
  recordSpending: internal(recordSpending),
  recordStorage: internal(accountChange(recordStorage)),
  takeBurst,
  reportAttempt,
  extendAttempt,
  finishRun,
  runOnStep,
  wait,
  notify,
  ...messageCommands(),
  ...accountCommands(),
  ...setUpCommands(),
  ...limiterCommands(),
};

function messageCommands() {
  return {
    bulk: audited(bulk, noteBulk),
    cancel: audited(
      cancel,
      noteMany(
        "message.cancel",
        ({ messageIds }) => messageIds,
        ({ cancelled }) => cancelled,
      ),
    ),
    endAttempts: audited(endAttempts, ({ attempts, host }, { ended }) =>
      ended === 0
        ? null
        : {
            what: host === undefined ? "message.endAttempt" : "host.endAttempts",
            object: host ?? attempts[0]?.messageId ?? null,
            count: ended,
          },
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
    replayDeadLetter: audited(replayDeadLetter, ({ dlqId, change, overrides }) => ({
      what: "dlq.replay",
      object: dlqId,
      fields: listFields({ ...change, ...overrides }),
    })),
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
    createAccount: accountChange(audited(createAccount, noteAccount("account.create"))),
    changeAccount: accountChange(audited(changeAccount, ({ change }) => noteAccountChange(change))),
    deleteAccount: accountChange(audited(deleteAccount, noteAccount("account.delete"))),
    rotateToken: accountChange(audited(rotateToken, noteAccount("token.rotate"))),
    rotateKeys: audited(rotateKeys, noteAccount("signingKey.rotate")),
    addPulledOrigin: accountChange(audited(addPulledOrigin, noteNamed("pulledOrigin.set"))),
    removePulledOrigin: accountChange(audited(removePulledOrigin, noteNamed("pulledOrigin.remove"))),
    createToken: audited(createToken, (_, { id }) => ({ what: "token.create", object: id })),
    revokeToken: accountChange(
      audited(revokeToken, ({ id }, { revoked }) => (revoked ? { what: "token.revoke", object: id } : null)),
    ),
  };
}

function setUpCommands() {
  return {
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
