import type { RunPart, StepHead } from "../../../src/engine/core/model/runPost.ts";
import { isSettledByStep } from "../../../src/engine/core/sending/recordOutcome.ts";
import { parseStepHead } from "../../../src/engine/core/model/run.ts";
import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { CommandCall } from "../../../src/engine/store/store.ts";
import { reusedRunIds } from "../actors/runClients.ts";
import type { Tables } from "../storage/changes.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";

/** A post for a run. `head` is null for the end of the run. `isCall`: it asks for a third-party request. */
type Post = { account: string; runId: string; head: StepHead | null; isCall: boolean };

/**
 * Checks that a post settles only the delivery in which its endpoint made it. The endpoints say which
 * delivery that was; the product has to find out.
 */
export class PostedStepChecker {
  /** The messages in whose deliveries each step was posted. */
  readonly #origins = new Map<string, Set<string>>();
  /** The runs that exist, by their ids. */
  readonly #runs = new Map<string, Set<string>>();
  /** The runs whose id an earlier run had, and those that continue another run. */
  readonly #ambiguous = new Set<string>();

  /** Called when an endpoint makes a request in a delivery of this message. */
  noteOrigin(call: CommandCall, messageId: string): void {
    for (const post of listPosts(call)) {
      const name = namePost(post);
      this.#origins.set(name, (this.#origins.get(name) ?? new Set()).add(messageId));
    }
  }

  check(
    { calls, result, changes }: ObservedBatch,
    {
      assertHolds,
      tables,
      cover,
    }: { assertHolds: AssertHolds; tables: Tables; cover: (what: string) => void },
  ): void {
    this.#noteRuns(changes);
    const settled = changes.log.flatMap(({ before, after }) =>
      after && !before && isSettledByStep(after) ? [after] : [],
    );
    if (settled.length === 0) return;
    const posts = calls.flatMap((call, index) =>
      "answer" in (result.replies[index] ?? {}) ? listPosts(call) : [],
    );
    for (const { account, messageId } of settled) {
      const run = tables.storedMessages.get(`${account}\n${messageId}`)?.run;
      if (!run) {
        assertHolds(false, `a step settles only messages of runs: ${messageId}`);
        continue;
      }
      const ofRun = posts.filter((post) => post.account === account && post.runId === run.runId);
      const ranOn = [...tables.steps.values()].flatMap((step) =>
        step.account === account && step.messageId === messageId ? (step.head?.stepId ?? []) : [],
      );
      const isMadeIn = (post: Post): boolean => this.#origins.get(namePost(post))?.has(messageId) === true;
      const fitting = ofRun.filter((post) => fits(run, post, ranOn));
      assertHolds(
        fitting.length > 0,
        `a post settles only the call that it follows: ${messageId} with ${run.stepKey} of ${run.runId}, ` +
          `by ${JSON.stringify(ofRun.map(({ head }) => head))}`,
      );
      assertHolds(
        !this.#ambiguous.has(run.run),
        `a post settles no delivery of a run if it may belong to another run: ${messageId} of ${run.runId}`,
      );
      // The simulation also posts in no delivery, for some runs.
      assertHolds(
        fitting.some(isMadeIn) || reusedRunIds.includes(run.runId),
        `a post settles only the delivery that it was made in: ${messageId} of ${run.runId}/${run.stepKey}`,
      );
      for (const { head, isCall } of fitting) cover(nameSettling(run, head, isCall));
    }
  }

  #noteRuns({ runs }: ObservedBatch["changes"]): void {
    for (const { before, after } of runs) {
      const row = after ?? before;
      if (!row || (before && after)) continue;
      const name = `${row.account}\n${row.runId}`;
      const known = this.#runs.get(name) ?? new Set<string>();
      this.#runs.set(name, known);
      if (before) known.delete(row.id);
      else if (known.size > 0 || row.origin !== null) this.#ambiguous.add(row.id);
      if (after) known.add(row.id);
    }
  }
}

const namePost = ({ account, runId, head, isCall }: Post): string =>
  JSON.stringify([account, runId, head?.stepId, head?.targetStep, head?.concurrent, isCall]);

function nameSettling({ stepKey }: RunPart, head: StepHead | null, isCall: boolean): string {
  if (!head) return "settled by the end of its run";
  if (stepKey.startsWith("p")) return isCall ? "settled by a call of its branch" : "settled by its branch";
  if (stepKey.startsWith("f")) return "settled by the result of a call";
  return head.stepId === 0 ? "settled by a plan" : "settled by the next step";
}

function listPosts({ name, input }: CommandCall): Post[] {
  if (name === "publish") {
    const { account, inputs } = input as CommandInput<"publish">;
    return inputs.flatMap(({ post }): Post[] => {
      if (post?.kind === "start")
        return post.invoker
          ? [
              {
                account,
                runId: post.invoker.runId,
                head: parseStepHead(post.invoker.step),
                isCall: false,
              },
            ]
          : [];
      return post ? [{ account, runId: post.runId, head: post.head, isCall: post.kind === "call" }] : [];
    });
  }
  if (name === "wait") {
    const { account, runId, waiter } = input as CommandInput<"wait">;
    return [{ account, runId, head: parseStepHead(waiter.step), isCall: false }];
  }
  if (name !== "finishRun") return [];
  const { account, runId } = input as CommandInput<"finishRun">;
  return [{ account, runId, head: null, isCall: false }];
}

/**
 * Reports whether a post can come from a call that carries this step. `ranOn` has the numbers of the steps
 * that are stored for the call.
 */
function fits({ kind, runId, stepKey }: RunPart, { head, isCall }: Post, ranOn: readonly number[]): boolean {
  if (kind === "call" || kind === "failure") return false;
  const number = Number(stepKey.slice(1));
  if (!head) return /^[ir]/.test(stepKey);
  const isBranch = head.stepId > 0 && head.concurrent > 1;
  const posted = head.stepId || (head.targetStep ?? 0);
  if (stepKey.startsWith("p")) return isBranch && posted === number;
  if (stepKey.startsWith("f")) {
    // A post that no delivery has led to may have asked for a call in place of a step of another type.
    const isOfType = head.stepType === "Call" || reusedRunIds.includes(runId);
    return posted === number && isOfType && !isCall;
  }
  if (isBranch) return false;
  return stepKey === "i"
    ? posted === 1 || ranOn.includes(posted - 1)
    : stepKey.startsWith("r") && posted > number;
}
