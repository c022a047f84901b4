import type { Draft, Key, BodyTableName, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import type { RunKey } from "../../src/core/model/message.ts";
import type { ActiveRun, Step } from "../../src/core/model/run.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterInput, alterDecision } from "./alterDecision.ts";

/** A decision that does not see which steps there are. */
const hideSteps = (_: unknown, draft: Draft): Alteration => ({
  getWithoutBody: ((name: BodyTableName, ...key: Key) =>
    name === "steps" ? undefined : draft.getWithoutBody(name, ...key)) as Draft["getWithoutBody"],
});

const isResult = (id: string): boolean => /\/r\d+$/.test(id);
const readText = (step: Step): string => new TextDecoder().decode(step.body);
const withText = (step: Step, text: string): Step => ({ ...step, body: new TextEncoder().encode(text) });

/** A decision that ends runs, and leaves rows of a table behind. */
const leaveRows = (table: TableName) => (): Alteration => ({ drop: (name) => name !== table });

/** A decision that turns what it writes of a run that goes on. */
const alterWrittenRuns =
  (turn: (row: ActiveRun, before: ActiveRun | undefined) => ActiveRun) =>
  (_: unknown, draft: Draft): Alteration => ({ put: { activeRuns: (row) => turn(row, draft.get("activeRuns", row.account, row.runId)) } });

/** Faults of workflow runs. */
export const runMutants: Record<string, Commands> = {
  "a position is not counted": alterDecision(
    "publish",
    alterWrittenRuns((row, before) => (before ? { ...row, steps: before.steps } : row)),
  ),
  "a step that begins to wait is not counted": alterDecision(
    "wait",
    alterWrittenRuns((row, before) => (before?.waiting === undefined ? row : { ...row, waiting: before.waiting })),
  ),
  "a step that is woken is still counted": alterDecision(
    "notify",
    alterWrittenRuns((row, before) => (before?.waiting === undefined ? row : { ...row, waiting: before.waiting })),
  ),
  "a step that is posted twice is kept in another place": alterDecision("publish", (_, draft) => ({
    ...hideSteps(_, draft),
    put: { steps: (row) => (draft.getWithoutBody("steps", row.account, row.id) ? { ...row, id: `${row.id}0` } : row) },
  })),
  "a step that is posted twice replaces the first": alterDecision("publish", hideSteps),
  "what a cancelled run waits for stays": alterDecision("cancelRuns", leaveRows("waiters")),
  "what a finished run waits for stays": alterDecision("finishRun", leaveRows("waiters")),
  "what a failed run waits for stays": alterDecision("settle", leaveRows("waiters")),
  "events stay behind their run": alterDecision("settle", leaveRows("notifications")),
  "messages of a cancelled run go on": alterDecision("cancelRuns", leaveRows("messages")),
  "messages that are being sent are dropped with their run": alterDecision("cancelRuns", (_, draft) => ({
    listRunRows: ((table: "messages", account: string, run: RunKey) => {
      const rows = draft.listRunRows(table, account, run);
      return table === "messages" ? rows.map((row) => ({ ...row, state: "pending" as const })) : rows;
    }) as Draft["listRunRows"],
  })),
  "a run ends for one who is not told": alterDecision("finishRun", () => ({ put: { steps: () => undefined } })),
  "a cancelled run tells that it has failed": alterDecision("cancelRuns", () => ({
    put: { steps: (row) => withText(row, readText(row).replace('\\"isFailed\\":false', '\\"isFailed\\":true')) },
  })),
  "the end of a run is told without its result": alterDecision("finishRun", () => ({
    put: { steps: (row) => withText(row, readText(row).replace(/\{\\"body\\":.*,\\"isCanceled/, '{\\"isCanceled')) },
  })),
  "a child tells twice": alterDecision("finishRun", (_, draft) => ({
    put: {
      steps: (row) => {
        draft.put("steps", { ...row, id: `${row.id}00`, position: row.position + 1 });
        return row;
      },
    },
  })),
  "a failed run is two dead letters": alterDecision("settle", (_, draft, moment) => ({
    put: {
      deadLetters: (row) => {
        if (row.run && !draft.get("deadLetters", row.account, row.id)) draft.put("deadLetters", { ...row, id: moment.newId("dlq") });
        return row;
      },
    },
  })),
  "a failed run is no dead letter": alterDecision("settle", () => ({ put: { deadLetters: (row) => (row.run ? undefined : row) } })),
  "a failure is not told": alterDecision("settle", () => ({
    put: {
      messages: (row) => row,
      storedMessages: (row) => (row.run?.kind === "failure" ? { ...row, run: { ...row.run, kind: "step" } } : row),
    },
  })),
  "the end of the time wakes what an event has woken": alterDecision("notify", leaveRows("waiters")),
  "an event is taken and stays": alterDecision("wait", leaveRows("notifications")),
  "an event that nobody waits for is lost": alterDecision("notify", () => ({ put: { notifications: () => undefined } })),
  "an event wakes for another reason": alterDecision("notify", () => ({
    put: { steps: (row) => withText(row, readText(row).replace('"waitTimeout":false', '"waitTimeout":true')) },
  })),
  "a wait has no end": alterDecision("wait", () => ({ put: { waiters: (row) => ({ ...row, dueAt: null }) } })),
  "a wait ends too soon": alterDecision("wait", () => ({ put: { waiters: (row) => ({ ...row, dueAt: row.createdAt + 1 }) } })),
  "a wait ends and its step has no result": alterDecision("claim", () => ({ put: { steps: () => undefined } })),
  "a resumed run forgets a result": alterDecision("resumeRun", () => ({ put: { steps: (row) => (isResult(row.id) ? undefined : row) } })),
  "a resumed run is sent a step that has its result": alterDecision("resumeRun", (_, draft) => ({
    put: {
      storedMessages: (row) => {
        if (row.run?.kind !== "step" || row.run.stepKey === "i" || row.run.position === 0) return row;
        const before = draft.listSteps(row.account, row.run.run).find(({ position }) => position === (row.run?.position ?? 0) - 1);
        return { ...row, run: { ...row.run, position: row.run.position - 1, stepKey: before?.id.split("/")[1] ?? row.run.stepKey } };
      },
    },
  })),
  "a resumed run begins again": alterInput("resumeRun", (input) => ({ ...input, from: "beginning" as const })),
  "a resumed run is sent nothing": alterDecision("resumeRun", () => ({ put: { messages: () => undefined } })),
  "a resumed run stays a dead letter": alterDecision("resumeRun", leaveRows("deadLetters")),
  "a run that ends goes on": alterDecision("finishRun", leaveRows("activeRuns")),
  "a run that has ended takes steps": alterDecision("cancelRuns", leaveRows("activeRuns")),
  "a run returns nothing": alterDecision("finishRun", () => ({ put: { runs: (row) => ({ ...row, body: new Uint8Array(0) }) } })),
  "a history carries what came after it": alterDecision("publish", () => ({
    put: { storedMessages: (row) => (row.run?.kind === "step" ? { ...row, run: { ...row.run, position: row.run.position + 1 } } : row) },
  })),
  "an answer of a third party is lost": alterDecision("settle", () => ({ put: { steps: () => undefined } })),
};
