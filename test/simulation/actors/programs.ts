import type { Step } from "../../../src/engine/core/model/run.ts";
import { RandomSource } from "../randomSource.ts";

/** The work of one step of a workflow. `invoke`: another workflow, by its URL. */
export type Work =
  | { kind: "run" }
  | { kind: "sleep"; delay: number }
  | { kind: "wait"; event: string; wait: number; of: "event" | "webhook" }
  | { kind: "call" }
  | { kind: "invoke"; url: string };

/** The code of a workflow: groups run one after another; the steps of a group start together. */
export type Program = { groups: readonly (readonly Work[])[]; brokenStep: number | null };

/** The events that workflows wait for. */
export const events = ["paid", "shipped", "called"] as const;
const host = /^https:\/\/flow-\d+\.example\//;
const maxDepth = 2;

/** Reports whether a URL is that of a workflow. */
export const isWorkflow = (url: string): boolean => host.test(url);
/** Returns the URL of a workflow. `depth` is the number of runs that invoked each other to start it. */
export const workflowUrl = (number: number, depth = 0): string =>
  `https://flow-${number % 3}.example/${number}/${depth}`;

const programs = new Map<string, Program>();

/** Returns the code for a URL, which is always the same. */
export function getProgram(url: string): Program {
  let program = programs.get(url);
  if (!program) programs.set(url, (program = makeProgram(url)));
  return program;
}

function makeProgram(url: string): Program {
  const [number = 0, depth = 0] = new URL(url).pathname.slice(1).split("/").map(Number);
  const random = new RandomSource(number * 10 + depth);
  const groups = Array.from({ length: random.integerBetween(1, 4) }, () => {
    const width = random.isHit(0.35) ? random.integerBetween(2, 3) : 1;
    return Array.from({ length: width }, () => randomWork(random, number, depth));
  });
  return { groups, brokenStep: random.isHit(0.5) ? random.integerBetween(2, 4) : null };
}

function randomWork(random: RandomSource, number: number, depth: number): Work {
  const wait = {
    event: random.of(events),
    wait: random.of([2_000, 60_000, 900_000]),
    of: random.of(["event", "event", "webhook"] as const),
  };
  const kinds: Work[] = [
    { kind: "run" },
    { kind: "run" },
    { kind: "sleep", delay: random.of([500, 20_000, 300_000]) },
    { kind: "wait", ...wait },
    { kind: "wait", ...wait },
    { kind: "call" },
    depth < maxDepth ? { kind: "invoke", url: workflowUrl(number + 1, depth + 1) } : { kind: "run" },
  ];
  return random.of(kinds);
}

/** The step types of the protocol. */
export const stepTypes: { [K in Work["kind"]]: string } = {
  run: "Run",
  sleep: "SleepFor",
  wait: "Wait",
  call: "Call",
  invoke: "Invoke",
};

/** A step as stored in a history. */
export type HistoryStep = {
  stepId: number;
  stepName: string;
  stepType: string;
  concurrent: number;
  targetStep?: number;
} & {
  out?: string;
  waitTimeout?: boolean;
};

/** The next action. `wrong`: the history does not belong to this program. */
export type Move =
  | { kind: "plan"; first: number; group: readonly Work[] }
  | { kind: "work"; stepId: number; work: Work; concurrent: number }
  | { kind: "finish"; outs: readonly (string | undefined)[] }
  | { kind: "nothing" }
  | { kind: "wrong"; why: string };

/** Replays a history as the client does, up to the first step without a result. */
export function replay({ groups }: Program, history: readonly HistoryStep[]): Move {
  const results = new Map(history.flatMap((step) => (step.stepId > 0 ? [[step.stepId, step] as const] : [])));
  const outs: (string | undefined)[] = [];
  let first = 1;
  for (const group of groups) {
    for (const [index, work] of group.entries()) {
      const result = results.get(first + index);
      const why = result && findMismatch(result, work, first + index);
      if (why) return { kind: "wrong", why };
    }
    const next = group.length === 1 ? single(results, first, group) : parallel(history, first, group);
    if (next) return next;
    for (const index of group.keys()) outs.push(results.get(first + index)?.out);
    first += group.length;
  }
  if (results.size !== outs.length)
    return { kind: "wrong", why: `${results.size} results of ${outs.length} steps` };
  return { kind: "finish", outs };
}

function single(
  results: ReadonlyMap<number, HistoryStep>,
  stepId: number,
  [work]: readonly Work[],
): Move | null {
  return results.has(stepId) || !work ? null : { kind: "work", stepId, work, concurrent: 1 };
}

function parallel(history: readonly HistoryStep[], first: number, group: readonly Work[]): Move | null {
  const ofGroup = history.filter(({ stepId, targetStep = 0 }) => targetStep >= first || stepId >= first);
  if (ofGroup.length === 0) return { kind: "plan", first, group };
  const last = ofGroup.at(-1);
  if (ofGroup.length >= 2 * group.length) return null;
  const work = last?.targetStep === undefined ? undefined : group[last.targetStep - first];
  if (last?.targetStep === undefined) return { kind: "nothing" };
  if (!work || last.concurrent !== group.length)
    return { kind: "wrong", why: `a plan of ${last.targetStep}` };
  return { kind: "work", stepId: last.targetStep, work, concurrent: group.length };
}

/** Returns the JSON that a step of the type `Run` returns. */
export const makeRunOutput = (stepId: number): string => `"out of ${stepId}"`;

function findMismatch(
  { stepType, out, waitTimeout }: HistoryStep,
  { kind }: Work,
  stepId: number,
): string | null {
  if (stepType !== stepTypes[kind]) return `step ${stepId} is a ${stepType} instead of ${stepTypes[kind]}`;
  if (kind === "run" && out !== makeRunOutput(stepId)) return `step ${stepId} has the result ${out}`;
  if (kind === "wait" && (waitTimeout === true) !== (out === undefined))
    return `step ${stepId} says ${out} and ${waitTimeout}`;
  if (kind === "invoke" && out === undefined) return `step ${stepId} has no result of its run`;
  return null;
}

/** Returns the steps of a history that endpoints use. */
export const readHistory = (steps: readonly Pick<Step, "callType" | "body">[]): HistoryStep[] =>
  steps
    .slice(1)
    .flatMap(({ callType, body }) =>
      callType === "step" ? [JSON.parse(new TextDecoder().decode(body)) as HistoryStep] : [],
    );
