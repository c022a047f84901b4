import type { Draft, Key, OutlineName, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import type { RunKey } from "../../src/core/model/message.ts";
import type { ActiveRun, Step } from "../../src/core/model/run.ts";
import type { Bend } from "./bent.ts";
import { asked, bent } from "./bent.ts";

/** A decision that does not see which steps there are. */
const blindToSteps = (_: unknown, draft: Draft): Bend => ({
  outline: ((name: OutlineName, ...key: Key) => (name === "steps" ? undefined : draft.outline(name, ...key))) as Draft["outline"],
});

const isResult = (id: string): boolean => /\/r\d+$/.test(id);
const textOf = (step: Step): string => new TextDecoder().decode(step.body);
const withText = (step: Step, text: string): Step => ({ ...step, body: new TextEncoder().encode(text) });

/** A decision that ends runs, and leaves rows of a table behind. */
const leaving = (table: TableName) => (): Bend => ({ drop: (name) => name !== table });

/** A decision that turns what it writes of a run that goes on. */
const counting =
  (turn: (row: ActiveRun, before: ActiveRun | undefined) => ActiveRun) =>
  (_: unknown, draft: Draft): Bend => ({ put: { activeRuns: (row) => turn(row, draft.get("activeRuns", row.account, row.runId)) } });

/** Faults of workflow runs. */
export const runMutants: Record<string, Commands> = {
  "a position is not counted": bent(
    "publish",
    counting((row, before) => (before ? { ...row, steps: before.steps } : row)),
  ),
  "a step that begins to wait is not counted": bent(
    "wait",
    counting((row, before) => (before?.waiting === undefined ? row : { ...row, waiting: before.waiting })),
  ),
  "a step that is woken is still counted": bent(
    "notify",
    counting((row, before) => (before?.waiting === undefined ? row : { ...row, waiting: before.waiting })),
  ),
  "a step that is posted twice is kept in another place": bent("publish", (_, draft) => ({
    ...blindToSteps(_, draft),
    put: { steps: (row) => (draft.outline("steps", row.account, row.id) ? { ...row, id: `${row.id}0` } : row) },
  })),
  "a step that is posted twice replaces the first": bent("publish", blindToSteps),
  "what a cancelled run waits for stays": bent("cancelRuns", leaving("waiters")),
  "what a finished run waits for stays": bent("finishRun", leaving("waiters")),
  "what a failed run waits for stays": bent("settle", leaving("waiters")),
  "events stay behind their run": bent("settle", leaving("notifications")),
  "messages of a cancelled run go on": bent("cancelRuns", leaving("messages")),
  "messages that are being sent are dropped with their run": bent("cancelRuns", (_, draft) => ({
    ...{
      ofRun: ((table: "messages", account: string, run: RunKey) => {
        const rows = draft.ofRun(table, account, run);
        return table === "messages" ? rows.map((row) => ({ ...row, state: "pending" as const })) : rows;
      }) as Draft["ofRun"],
    },
  })),
  "a run ends for one who is not told": bent("finishRun", () => ({ put: { steps: () => undefined } })),
  "a cancelled run tells that it has failed": bent("cancelRuns", () => ({
    put: { steps: (row) => withText(row, textOf(row).replace('\\"isFailed\\":false', '\\"isFailed\\":true')) },
  })),
  "the end of a run is told without its result": bent("finishRun", () => ({
    put: { steps: (row) => withText(row, textOf(row).replace(/\{\\"body\\":.*,\\"isCanceled/, '{\\"isCanceled')) },
  })),
  "a child tells twice": bent("finishRun", (_, draft) => ({
    put: {
      steps: (row) => {
        draft.put("steps", { ...row, id: `${row.id}00`, position: row.position + 1 });
        return row;
      },
    },
  })),
  "a failed run is two dead letters": bent("settle", (_, draft, moment) => ({
    put: {
      deadLetters: (row) => {
        if (row.run && !draft.get("deadLetters", row.account, row.id)) draft.put("deadLetters", { ...row, id: moment.newId("dlq") });
        return row;
      },
    },
  })),
  "a failed run is no dead letter": bent("settle", () => ({ put: { deadLetters: (row) => (row.run ? undefined : row) } })),
  "a failure is not told": bent("settle", () => ({
    put: {
      ...{
        messages: (row) => row,
        envelopes: (row) => (row.run?.kind === "failure" ? { ...row, run: { ...row.run, kind: "step" } } : row),
      },
    },
  })),
  "the end of the time wakes what an event has woken": bent("notify", leaving("waiters")),
  "an event is taken and stays": bent("wait", leaving("notifications")),
  "an event that nobody waits for is lost": bent("notify", () => ({ put: { notifications: () => undefined } })),
  "an event wakes for another reason": bent("notify", () => ({
    put: { steps: (row) => withText(row, textOf(row).replace('"waitTimeout":false', '"waitTimeout":true')) },
  })),
  "a wait has no end": bent("wait", () => ({ put: { waiters: (row) => ({ ...row, dueAt: null }) } })),
  "a wait ends too soon": bent("wait", () => ({ put: { waiters: (row) => ({ ...row, dueAt: row.createdAt + 1 }) } })),
  "a wait ends and its step has no result": bent("claim", () => ({ put: { steps: () => undefined } })),
  "a resumed run forgets a result": bent("resumeRun", () => ({ put: { steps: (row) => (isResult(row.id) ? undefined : row) } })),
  "a resumed run is sent a step that has its result": bent("resumeRun", (_, draft) => ({
    put: {
      envelopes: (row) => {
        if (row.run?.kind !== "step" || row.run.slot === "i" || row.run.position === 0) return row;
        const before = draft.stepsOf(row.account, row.run.run).find(({ position }) => position === (row.run?.position ?? 0) - 1);
        return { ...row, run: { ...row.run, position: row.run.position - 1, slot: before?.id.split("/")[1] ?? row.run.slot } };
      },
    },
  })),
  "a resumed run begins again": asked("resumeRun", (input) => ({ ...input, from: "beginning" as const })),
  "a resumed run is sent nothing": bent("resumeRun", () => ({ put: { messages: () => undefined } })),
  "a resumed run stays a dead letter": bent("resumeRun", leaving("deadLetters")),
  "a run that ends goes on": bent("finishRun", leaving("activeRuns")),
  "a run that has ended takes steps": bent("cancelRuns", leaving("activeRuns")),
  "a run returns nothing": bent("finishRun", () => ({ put: { runs: (row) => ({ ...row, body: new Uint8Array(0) }) } })),
  "a history carries what came after it": bent("publish", () => ({
    put: { envelopes: (row) => (row.run?.kind === "step" ? { ...row, run: { ...row.run, position: row.run.position + 1 } } : row) },
  })),
  "an answer of a third party is lost": bent("settle", () => ({ put: { steps: () => undefined } })),
};
