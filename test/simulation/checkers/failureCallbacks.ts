import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { Run } from "../../../src/engine/core/model/run.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";

type Context = { assertHolds: AssertHolds; cover: (what: string) => void };

/**
 * Checks where the failure of a run is reported. If the run does not keep the settings of its start, this is
 * the failure callback of the post that created the failed message. Otherwise, it is the failure callback of
 * the run.
 */
export class FailureCallbackChecker {
  /** The URL of the failure callback that the post of a step gave, by the message of the step. */
  readonly #posted = new Map<string, string>();

  check({ calls, result, changes }: ObservedBatch, { assertHolds, cover }: Context): void {
    const created = new Set(
      changes.storedMessages.flatMap(({ before, after }) => (after && !before ? [after.id] : [])),
    );
    calls.forEach(({ name, input }, at) => {
      const reply = result.replies[at];
      if (name !== "publish" || !reply || !("answer" in reply)) return;
      const { inputs } = input as CommandInput<"publish">;
      (reply.answer as PublishResult[]).forEach((one, index) => {
        const { post, failureCallback } = inputs[index] ?? {};
        // A step that was posted before keeps its message. A step that ran on has none: it fails as the
        // call in which it ran.
        if (post?.kind === "step" && failureCallback && "messageId" in one && created.has(one.messageId))
          this.#posted.set(one.messageId, failureCallback.url);
      });
    });
    for (const { before, after } of changes.runs) {
      if (after?.state !== "RUN_FAILED" || before?.state === "RUN_FAILED") continue;
      const ofPost = after.features.captured ? undefined : this.#posted.get(after.failure?.messageId ?? "");
      const expected = ofPost ?? findStartedWith(after, before);
      const reported = changes.storedMessages.flatMap(({ after: message }) =>
        message?.run?.kind === "failure" && message.run.run === after.id ? message.url : [],
      );
      assertHolds(
        JSON.stringify(reported) === JSON.stringify(expected === undefined ? [] : [expected]),
        `a failure is reported to the failure callback of its message: ${after.id} to ${reported.join(" ")}`,
      );
      if (ofPost !== undefined) cover("failure reported as a step asked");
    }
  }
}

/** Returns the failure callback of a run before it failed. A run that fails at once has no earlier row. */
const findStartedWith = (after: Run, before: Run | undefined): string | undefined =>
  (before ?? after).settings.failureCallback?.url;
