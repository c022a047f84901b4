import { describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { OpenStore, StoreFixture } from "../storeFixture.ts";
import {
  listHistory,
  listPositions,
  makeRunStart,
  makeRunStep,
  openWithAccount,
  readActiveRun,
} from "./runs.ts";

/** Steps that run on in the call in which they were posted. */
export function describeRunOn(open: OpenStore): void {
  describe("steps that run on", () => {
    test("are sent again, although the first delivery of their message needed no report", async () => {
      const fixture = await openWithAccount(open);
      const call = await startCall(fixture);
      expect(await postInCall(fixture, call, 1)).toMatchObject({ runsOn: true });
      expect(await postInCall(fixture, call, 2)).toMatchObject({ runsOn: true });
      expect(await postShort(fixture, call, 3)).toEqual({ runOn: true });
      expect(await postShort(fixture, call, 5)).toEqual({ runOn: false });
      expect(await fixture.settle(call)).toEqual({ became: "retry" });
      fixture.clock.now += 1;
      const [again] = await fixture.claim();
      expect(again && listHistory(again)).toEqual(["payload\0", "step 1", "step 2", "step 3"]);
      expect(await fixture.store.read.message("acc", call.message.id)).toMatchObject({
        state: {
          state: "active",
          attempts: 1,
          lostAttempts: 1,
          reportsOutcome: true,
          size: again?.message.run?.size,
        },
      });
    });

    test("are sent again by the node that finds the end of the lease", async () => {
      const fixture = await openWithAccount(open);
      const call = await startCall(fixture);
      await postInCall(fixture, call, 1);
      fixture.forgetDelivery(call.message.id);
      fixture.clock.now += spans.lease + 1;
      const [again] = await fixture.claim();
      expect(again && listHistory(again)).toEqual(["payload\0", "step 1"]);
      const run = await readActiveRun(fixture, "wfr_1");
      expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r1"]);
    });
  });
}

/** Returns the first call of a run, which has been sent. */
async function startCall(fixture: StoreFixture): Promise<Delivery> {
  const call = await fixture.sent(makeRunStart("wfr_1"));
  fixture.clock.now += 1;
  return call;
}

/** Posts a step in a call, in the short form. */
function postShort(fixture: StoreFixture, { message, attempt }: Delivery, stepId: number) {
  const { post, body } = makeRunStep("wfr_1", stepId);
  if (post?.kind !== "step" || !post.head) throw new Error("not a step");
  const runOn = { messageId: message.id, attempt, call: "c1" };
  return fixture.store.execute("runOnStep", { account: "acc", runId: "wfr_1", head: post.head, body, runOn });
}

/** Posts a step in a call that asks to run on. */
async function postInCall(fixture: StoreFixture, { message, attempt }: Delivery, stepId: number) {
  const { post, ...input } = makeRunStep("wfr_1", stepId);
  if (post?.kind !== "step") throw new Error("not a step");
  const runOn = { messageId: message.id, attempt, call: "c1" };
  const [posted] = await fixture.publish([{ ...input, post: { ...post, runOn } }]);
  return posted;
}
