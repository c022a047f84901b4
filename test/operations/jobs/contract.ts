import { describe, expect, test } from "vitest";
import type { CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import { limits } from "../../../src/engine/core/values/limits.ts";
import type { Job } from "../../../src/operations/jobs/job.ts";
import { readIdTime } from "../../../src/engine/core/values/ids.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { StoreFixture } from "../../engine/store/storeFixture.ts";

const startedBy = { kind: "token", token: "main", address: null } as const;
const day = 86_400_000;

const create = (fixture: StoreFixture, more: Partial<CommandInput<"createJob">> = {}): Promise<Job> =>
  fixture.store.execute("createJob", {
    account: "acc",
    action: "dlq.retry",
    filter: { belongsToRun: false },
    startedBy,
    last: "9999999999999-999999999",
    rate: null,
    canary: null,
    known: [],
    logRetention: day,
    ...more,
  } as CommandInput<"createJob">);

type Portion = { ids: readonly string[]; isEnd?: boolean };

const moveOn = (fixture: StoreFixture, { id, action, position }: Job, { ids, isEnd = false }: Portion) =>
  fixture.store.execute("continueJob", {
    account: "acc",
    jobId: id,
    action,
    position,
    entries: ids.map((entry) => ({ id: entry })),
    isEnd,
    logRetention: day,
  });

/** A portion of a job changes its entries and moves the job in one transaction. */
export function describeJobs(open: OpenStore): void {
  describe("jobs", () => {
    test("of messages or runs take what existed at their start, by the clock of the store", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      for (const action of ["messages.cancel", "runs.cancel"] as const) {
        const { last, createdAt } = await create(fixture, { action, filter: {}, last: null });
        expect(readIdTime(last)).toBe(createdAt + 1);
        expect(last).toMatch(action === "runs.cancel" ? /^run_/ : /^msg_/);
      }
    });

    test("are limited, even if many are created at once; a new one replaces one that has ended", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const first = await create(fixture);
      const others = await Promise.allSettled(
        Array.from({ length: limits.jobs + 5 }, () => create(fixture, { known: [first.id] })),
      );
      const refused = others.flatMap((one) => (one.status === "rejected" ? [String(one.reason)] : []));
      expect(refused).toHaveLength(6);
      for (const text of refused) expect(text).toMatch(/jobs: 100 have not ended, and the limit is 100/);
      await moveOn(fixture, first, { ids: [], isEnd: true });
      const [replacing, tooMany] = await Promise.allSettled([
        create(fixture, { known: [first.id] }),
        create(fixture, { known: [first.id] }),
      ]);
      expect([replacing?.status, tooMany?.status]).toEqual(["fulfilled", "rejected"]);
      const left = await fixture.store.read.jobs({ account: "acc", limit: 1_000 });
      expect(left).toHaveLength(limits.jobs);
      expect(left.map(({ id }) => id)).not.toContain(first.id);
      expect(await create(fixture, { account: "other" })).toMatchObject({ account: "other" });
    });

    test("handle a portion once, and are due until they have ended", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const one = await fixture.publishFailing();
      const two = await fixture.publishFailing();
      fixture.delivered();
      const job = await create(fixture);
      expect(await fixture.store.read.dueJobs(fixture.clock.now, 10)).toEqual([job]);
      expect(await fixture.store.read.dueJobs(fixture.clock.now - 1, 10)).toEqual([]);
      const moved = await moveOn(fixture, job, { ids: [one.dlqId] });
      expect(moved).toMatchObject({ position: one.dlqId, done: 1, failed: 0, state: "running" });
      expect(await moveOn(fixture, job, { ids: [two.dlqId] })).toBeNull();
      expect(fixture.delivered()).toHaveLength(1);
      const ended = await moveOn(fixture, moved ?? job, { ids: [two.dlqId, "9000000000000-0"], isEnd: true });
      expect(ended).toMatchObject({ state: "done", done: 2, failed: 1, dueAt: null });
      expect(fixture.delivered()).toHaveLength(1);
      expect(await fixture.store.read.dueJobs(fixture.clock.now + day, 10)).toEqual([]);
      expect(await fixture.store.read.job("acc", job.id)).toEqual(ended);
      expect(await fixture.store.read.deadLetter("acc", two.dlqId)).toBeNull();
    });

    test("change nothing with a portion that is refused", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { dlqId } = await fixture.publishFailing();
      const job = await create(fixture, { action: "runs.resume" });
      await expect(moveOn(fixture, job, { ids: [dlqId] })).rejects.toThrow("is a message, not a run");
      expect(await fixture.store.read.job("acc", job.id)).toEqual(job);
    });

    test("are due in the order of their times, over all accounts", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const first = await create(fixture, { account: "other" });
      fixture.clock.now += 5;
      const second = await create(fixture);
      const third = await create(fixture);
      const ids = async (limit: number) =>
        (await fixture.store.read.dueJobs(fixture.clock.now, limit)).map(({ id }) => id);
      expect(await ids(10)).toEqual([first.id, second.id, third.id]);
      expect(await ids(2)).toEqual([first.id, second.id]);
      await fixture.store.execute("stopJob", { account: "acc", id: second.id, stoppedBy: startedBy });
      expect(await ids(10)).toEqual([first.id, third.id]);
    });

    test("note their number and their canary, and nothing after their end", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { dlqId } = await fixture.publishFailing();
      const job = await create(fixture, { canary: 1 });
      const note = (what: CommandInput<"noteJob">["note"]) =>
        fixture.store.execute("noteJob", { account: "acc", jobId: job.id, note: what });
      expect(await note({ total: 1 })).toMatchObject({ total: 1, state: "running" });
      // A node that counted later has found fewer entries, because others were handled meanwhile.
      expect(await note({ total: 0 })).toMatchObject({ total: 1 });
      expect(await moveOn(fixture, job, { ids: [dlqId] })).toMatchObject({
        state: "waiting",
        results: [{ id: dlqId, became: expect.stringMatching(/^msg_/) }],
      });
      fixture.clock.now += 1_000;
      expect(await note({ canary: "pending" })).toMatchObject({ state: "waiting" });
      expect(await note({ canary: "succeeded" })).toMatchObject({ state: "running", canaryPassed: true });
      expect(await note({ error: "e" })).toMatchObject({ state: "failed", error: "e", dueAt: null });
      expect(await note({ total: 2 })).toBeNull();
    });

    test("are removed with their account", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const job = await create(fixture);
      const input = { account: "acc", ids: [job.id, "job_none"] };
      expect(await fixture.store.execute("removeJobs", input)).toEqual({ removed: 1 });
      expect(await fixture.store.read.jobs({ account: "acc", limit: 10 })).toEqual([]);
    });
  });
}
