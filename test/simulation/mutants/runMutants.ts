import type {
  Draft,
  RunNeed,
  Key,
  BodyTableName,
  TableName,
} from "../../../src/engine/core/decision/command.ts";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import type { ActiveRun, Step } from "../../../src/engine/core/model/run.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterInput, alterDecision } from "./alterDecision.ts";

/** Hides existing steps from a decision. */
const hideSteps = (_: unknown, draft: Draft): Alteration => ({
  inspectWithoutBody: ((name: BodyTableName, ...key: Key) =>
    name === "steps"
      ? undefined
      : draft.inspectWithoutBody(name as "steps", ...key)) as Draft["inspectWithoutBody"],
});

const isResult = (id: string): boolean => /\/r\d+$/.test(id);
const readText = (step: Step): string => new TextDecoder().decode(step.body);
const withText = (step: Step, text: string): Step => ({ ...step, body: new TextEncoder().encode(text) });

/** Leaves rows of a table behind in a decision that ends runs. */
const leaveRows = (table: TableName) => (): Alteration => ({ drop: (name) => name !== table });

/** Alters the active runs that a decision writes. */
const alterWrittenRuns =
  (turn: (row: ActiveRun, before: ActiveRun | undefined) => ActiveRun) =>
  (_: unknown, draft: Draft): Alteration => ({
    put: { activeRuns: (row) => turn(row, draft.get("activeRuns", row.account, row.runId)) },
  });

/** Faults of workflow runs. */
export const runMutants: Record<string, Commands> = {
  "a position is not counted": alterDecision(
    "publish",
    alterWrittenRuns((row, before) => (before ? { ...row, steps: before.steps } : row)),
  ),
  "a step that starts to wait is not counted": alterDecision(
    "wait",
    alterWrittenRuns((row, before) =>
      before?.waiting === undefined ? row : { ...row, waiting: before.waiting },
    ),
  ),
  "a step that is notified is still counted as waiting": alterDecision(
    "notify",
    alterWrittenRuns((row, before) =>
      before?.waiting === undefined ? row : { ...row, waiting: before.waiting },
    ),
  ),
  "a step that is posted twice is stored twice": alterDecision("publish", (_, draft) => ({
    ...hideSteps(_, draft),
    put: {
      steps: (row) =>
        draft.inspectWithoutBody("steps", row.account, row.id) ? { ...row, id: `${row.id}0` } : row,
    },
  })),
  "a step that is posted twice replaces the first": alterDecision("publish", hideSteps),
  "a step that runs on is not counted": alterDecision(
    "runOnStep",
    alterWrittenRuns((row, before) => (before ? { ...row, steps: before.steps } : row)),
  ),
  "a step that runs on is not stored": alterDecision("runOnStep", () => ({
    put: { steps: () => undefined },
  })),
  "waiters of a cancelled run stay": alterDecision("cancelRuns", leaveRows("waiters")),
  "waiters of a finished run stay": alterDecision("finishRun", leaveRows("waiters")),
  "waiters of a failed run stay": alterDecision("settle", leaveRows("waiters")),
  "notifications outlive their run": alterDecision("settle", leaveRows("notifications")),
  "messages of a cancelled run continue": alterDecision("cancelRuns", leaveRows("messages")),
  "messages in flight are dropped with their run": alterDecision("cancelRuns", (_, draft) => ({
    listRunRows: ((table: "messages", run: RunNeed) => {
      const rows = draft.listRunRows(table, run);
      return table === "messages" ? rows.map((row) => ({ ...row, state: "pending" as const })) : rows;
    }) as Draft["listRunRows"],
  })),
  "a step settles the call of another branch": alterDecision("publish", (_, draft) => ({
    inspectWithoutBody: ((name: BodyTableName, account: string, id: string) =>
      draft.inspectWithoutBody(
        name as "steps",
        account,
        name === "steps" ? id.replace(/\/p(\d+)$/, (_all, number) => `/p${Number(number) + 1}`) : id,
      )) as Draft["inspectWithoutBody"],
  })),
  "a step frees the places of a request that still runs": alterDecision("publish", (_, draft) => ({
    put: {
      messages: (row) => {
        if (row.state !== "settled") return row;
        draft.drop("messages", row.account, row.id);
        return undefined;
      },
    },
  })),
  "any later step settles the last call": alterDecision("publish", () => ({
    put: { activeRuns: (row) => ({ ...row, lastCall: row.lastCall && { ...row.lastCall, toStep: 99 } }) },
  })),
  "a third party is taken for the endpoint": alterDecision("publish", (_, draft) => ({
    put: {
      activeRuns: (row) => {
        const last = draft
          .listRunRows("steps", { account: row.account, run: row.run })
          .find(({ callType, position }) => callType === "toCallback" && position === row.steps - 1);
        return last && row.lastCall
          ? { ...row, lastCall: { ...row.lastCall, messageId: last.messageId } }
          : row;
      },
    },
  })),
  "a run ends without notifying its parent": alterDecision("finishRun", () => ({
    put: { steps: () => undefined },
  })),
  "a cancelled run is reported as failed": alterDecision("cancelRuns", () => ({
    put: {
      steps: (row) => withText(row, readText(row).replace('\\"isFailed\\":false', '\\"isFailed\\":true')),
    },
  })),
  "the end of a run is reported without its result": alterDecision("finishRun", () => ({
    put: {
      steps: (row) => withText(row, readText(row).replace(/\{\\"body\\":.*,\\"isCanceled/, '{\\"isCanceled')),
    },
  })),
  "a child reports its end twice": alterDecision("finishRun", (_, draft) => ({
    put: {
      steps: (row) => {
        draft.put("steps", { ...row, id: `${row.id}00`, position: row.position + 1 });
        return row;
      },
    },
  })),
  "a failed run has two dead letters": alterDecision("settle", (_, draft, moment) => ({
    put: {
      deadLetters: (row) => {
        if (row.run && !draft.inspect("deadLetters", row.account, row.id))
          draft.put("deadLetters", { ...row, id: moment.newId("dlq") });
        return row;
      },
    },
  })),
  "a failed run has no dead letter": alterDecision("settle", () => ({
    put: { deadLetters: (row) => (row.run ? undefined : row) },
  })),
  "a failure is not reported": alterDecision("settle", () => ({
    put: {
      messages: (row) => row,
      storedMessages: (row) =>
        row.run?.kind === "failure" ? { ...row, run: { ...row.run, kind: "step" } } : row,
    },
  })),
  "the failure callback of a step is dropped": alterDecision("publish", () => ({
    put: {
      storedMessages: (row) => (row.run?.kind === "step" ? { ...row, failureCallback: null } : row),
    },
  })),
  "a timeout wakes a step that an event has woken": alterDecision("notify", leaveRows("waiters")),
  "a notification stays after a step has taken it": alterDecision("wait", leaveRows("notifications")),
  "an event without a waiter is lost": alterDecision("notify", () => ({
    put: { notifications: () => undefined },
  })),
  "an event is recorded as a timeout": alterDecision("notify", () => ({
    put: {
      steps: (row) => withText(row, readText(row).replace('"waitTimeout":false', '"waitTimeout":true')),
    },
  })),
  "a wait never times out": alterDecision("wait", () => ({
    put: { waiters: (row) => ({ ...row, dueAt: null }) },
  })),
  "a wait times out too early": alterDecision("wait", () => ({
    put: { waiters: (row) => ({ ...row, dueAt: row.createdAt + 1 }) },
  })),
  "a wait times out without a result": alterDecision("claim", () => ({
    put: { steps: () => undefined },
  })),
  "a resumed run loses a result": alterDecision("resumeRun", () => ({
    put: { steps: (row) => (isResult(row.id) ? undefined : row) },
  })),
  "a resumed run repeats a step that has a result": alterDecision("resumeRun", (_, draft) => ({
    put: {
      storedMessages: (row) => {
        if (row.run?.kind !== "step" || row.run.stepKey === "i" || row.run.position === 0) return row;
        const before = draft
          .listSteps(row.account, row.run.run)
          .find(({ position }) => position === (row.run?.position ?? 0) - 1);
        return {
          ...row,
          run: {
            ...row.run,
            position: row.run.position - 1,
            stepKey: before?.id.split("/")[1] ?? row.run.stepKey,
          },
        };
      },
    },
  })),
  "a resumed run restarts": alterInput("resumeRun", (input) => ({
    ...input,
    from: "beginning" as const,
  })),
  "a resumed run sends nothing": alterDecision("resumeRun", () => ({ put: { messages: () => undefined } })),
  "a resumed run keeps its dead letter": alterDecision("resumeRun", leaveRows("deadLetters")),
  "a finished run stays active": alterDecision("finishRun", leaveRows("activeRuns")),
  "a bulk action cancels another run with the id": alterInput("bulk", ({ entries, ...input }) => ({
    ...input,
    entries: entries.map(({ id, runId = id }) => ({ id: runId })),
  })),
  "an ended run accepts steps": alterDecision("cancelRuns", leaveRows("activeRuns")),
  "a run returns no result": alterDecision("finishRun", () => ({
    put: { runs: (row) => ({ ...row, body: new Uint8Array(0) }) },
  })),
  "a history contains later steps": alterDecision("publish", () => ({
    put: {
      storedMessages: (row) =>
        row.run?.kind === "step" ? { ...row, run: { ...row.run, position: row.run.position + 1 } } : row,
    },
  })),
  "the response of a third party is lost": alterDecision("settle", () => ({
    put: { steps: () => undefined },
  })),
};
