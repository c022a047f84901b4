import { describe, expect, test } from "vitest";
import { makeDeletion } from "../../../makeDeletion.ts";
import { bytes, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import type { CauseQuery } from "../../../../src/engine/store/queries/causes.ts";
import { compareText } from "../../../model/memoryDue.ts";
import { hour } from "../../../../src/engine/core/values/time.ts";
import { failRuns, makeStartInput } from "./failedRuns.ts";
import { makeRunStep } from "./runs.ts";

const says = (text: string) => ({ status: 500, body: bytes(JSON.stringify({ message: text })) });

/** Fails messages to URLs with these answers, a second after one another. */
async function fail(fixture: StoreFixture, failures: readonly [string, string][], account = "acc") {
  for (const [url, text] of failures) {
    fixture.clock.now += 1_000;
    await fixture.settle(await fixture.sent({ retries: 0, url }, account), says(text));
  }
}

/** Groups of all dead letters, counted by their tags. */
export function describeCauses(open: OpenStore): void {
  describe("groups of all dead letters", () => {
    const find = (fixture: StoreFixture, query: Partial<CauseQuery> = {}) => {
      const { now } = fixture.clock;
      const trend = { from: now - 23 * hour, to: now + hour };
      return fixture.store.read.groupByCause({
        ...{ account: "acc", of: "messages", cursor: null, count: 100, trend },
        ...query,
      });
    };

    test("are counted by cause, with the first, the last and a trend", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const start = fixture.clock.now;
      await fail(fixture, [
        ["https://a.example/orders/17?x=1", "ORA-00060: deadlock detected"],
        ["https://b.example/in", "no"],
        ["https://a.example/orders/2921", "ORA-00060: deadlock detected"],
      ]);
      fixture.clock.now += 2 * hour;
      await fail(fixture, [["https://a.example/orders/3", "ORA-00060: deadlock detected"]]);
      await fail(fixture, [["https://a.example/orders/3", "no"]], "other");
      const found = await find(fixture);
      expect(found).toMatchObject({ entries: 4, causes: 2, cursor: null });
      expect(found.groups).toMatchObject([
        {
          url: "https://a.example/orders/…",
          error: "ORA-00060: deadlock detected",
          status: 500,
          count: 3,
          isCut: false,
          firstAt: start + 1_000,
          lastAt: start + 2 * hour + 4_000,
        },
        { url: "https://b.example/in", error: "no", count: 1, firstAt: start + 2_000, lastAt: start + 2_000 },
      ]);
      const [largest, other] = found.groups;
      expect(largest?.trend.slice(-5)).toEqual([0, 2, 0, 1, 0]);
      expect(largest?.trend).toHaveLength(24);
      const { entries } = await fixture.store.read.deadLetters({
        ...{ account: "acc", order: "earliestFirst", cursor: null, count: 10 },
        filter: { causes: [largest?.cause ?? ""], belongsToRun: false },
      });
      expect(entries.map(({ message }) => message.url.slice(0, 26))).toEqual([
        "https://a.example/orders/1",
        "https://a.example/orders/2",
        "https://a.example/orders/3",
      ]);
      expect(entries.at(-1)?.deadLetter.id).toBe(largest?.dlqId);

      const one = await find(fixture, { count: 1 });
      expect(one).toMatchObject({ groups: [largest], causes: 2, entries: 4 });
      const chosen = { causes: [other?.cause ?? "", "00000000000", "~", ""] };
      expect(await find(fixture, chosen)).toMatchObject({ groups: [other], causes: 1 });
      expect((await find(fixture, { causes: [] })).groups).toEqual([]);
      const early = await find(fixture, { from: start + 2_000, to: start + 3_000 });
      expect(early.groups).toMatchObject([
        { cause: largest?.cause, count: 1, firstAt: start + 3_000, lastAt: start + 3_000 },
        { cause: other?.cause, count: 1 },
      ]);
      expect((await find(fixture, { to: start })).groups).toEqual([]);
      const order = found.groups.map(({ cause }) => cause ?? "").sort(compareText);
      const rest = await find(fixture, { cursor: order[0] ?? null });
      expect(rest.groups.map(({ cause }) => cause)).toEqual([order[1]]);
      expect((await find(fixture, { account: "other" })).groups).toMatchObject([{ error: "no", count: 1 }]);
    });

    test("of runs are counted by workflow, step and error, apart from those of messages", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const start = fixture.clock.now;
      const url = "https://app.example/flow";
      await failRuns(fixture, [makeStartInput("wfr_1"), makeStartInput("wfr_2")]);
      await failRuns(fixture, [makeStartInput("wfr_1")], "other");
      // This run fails after its first step.
      await fixture.publish([makeStartInput("wfr_3")]);
      const [first] = fixture.delivered();
      await fixture.publish([{ ...makeRunStep("wfr_3", 1), retries: 0 }]);
      if (first) await fixture.settle(first);
      fixture.clock.now += 1_000;
      for (const delivery of fixture.delivered()) await fixture.settle(delivery, says("no"));
      await fail(fixture, [["https://a.example", "no"]]);
      const { groups, ...rest } = await find(fixture, { of: "runs" });
      expect(rest).toEqual({ entries: 3, causes: 2, cursor: null });
      const common = { url, status: null, stepName: null };
      const error = "the endpoint answered with status …";
      expect(groups).toMatchObject([
        { ...common, error, afterStep: null, count: 2, firstAt: start, lastAt: start },
        { ...common, error: "no", afterStep: "s1", count: 1, firstAt: start + 1_000 },
      ]);
      expect((await find(fixture)).groups).toMatchObject([{ url: "https://a.example", count: 1 }]);
      const cause = groups[0]?.cause ?? "";
      expect(await find(fixture, { of: "runs", causes: [cause] })).toMatchObject({ groups: [{ count: 2 }] });
      expect((await find(fixture, { causes: [cause] })).groups).toEqual([]);
      const { entries } = await fixture.store.read.deadLetters({
        ...{ account: "acc", order: "earliestFirst", cursor: null, count: 10 },
        filter: { causes: [cause], belongsToRun: true },
      });
      expect(entries.map(({ deadLetter }) => deadLetter.run?.runId)).toEqual(["wfr_1", "wfr_2"]);
      // Groups of some of the runs, which are read one by one, have the same causes.
      const read = await fixture.store.read.groupDeadLetters({
        ...{ account: "acc", order: "latestFirst", cursor: null, count: 10 },
        filter: { belongsToRun: true, runUrls: [url] },
      });
      expect(read.groups.map(({ cause: id, count }) => [id, count])).toEqual(
        groups.map(({ cause: id, count }) => [id, count]),
      );
    });

    test("become smaller when dead letters are deleted, and lose no run", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fail(fixture, [
        ["https://a.example", "one"],
        ["https://a.example", "one"],
        ["https://a.example", "two"],
      ]);
      const before = await find(fixture);
      const [first, second] = before.groups;
      const dlqIds = [first?.dlqId ?? "", second?.dlqId ?? ""];
      await fixture.store.execute("bulk", makeDeletion({ account: "acc", dlqIds, logRetention: 1_000 }));
      expect((await find(fixture)).groups).toMatchObject([{ cause: first?.cause, count: 1 }]);
    });
  });
}
