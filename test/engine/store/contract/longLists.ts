import { describe, expect, test } from "vitest";
import { makeLogQuery, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import { failRuns, makeStartInput } from "./failedRuns.ts";

/** Returns what all pages of a list have. */
async function readPages<Page extends { cursor: string | null }>(
  read: (cursor: string | null) => Promise<Page>,
  list: (page: Page) => readonly string[],
): Promise<string[]> {
  const found: string[] = [];
  for (let cursor: string | null = null; ;) {
    const page: Page = await read(cursor);
    found.push(...list(page));
    if (page.cursor === null) return found;
    cursor = page.cursor;
  }
}

const orders = ["earliestFirst", "latestFirst"] as const;
const usual = "https://one.example/hook";
const rare = "https://rare.example/rare";

/** Lists in which few of many rows match, so that a page reads several chunks of rows. */
export function describeLongLists(open: OpenStore): void {
  describe("long lists", () => {
    test("have all messages and log entries that match, however far apart they are", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids: string[] = [];
      for (let n = 0; n < 340; n += 85) {
        // Each message has another due time, later ones an earlier one.
        const inputs = Array.from({ length: 85 }, (_, at) =>
          makeInput({
            url: (n + at) % 113 === 112 ? rare : usual,
            delay: 900_000 - (n + at) * 1_000,
            body: new Uint8Array(0),
            labels: ["all"],
          }),
        );
        const results = await fixture.publish(inputs);
        ids.push(...results.flatMap((result) => ("messageId" in result ? [result.messageId] : [])));
        fixture.clock.now += 4_000;
      }
      expect(ids).toHaveLength(340);
      const matching = ids.filter((_, n) => n % 113 === 112);
      expect(matching).toHaveLength(3);
      const filters = [{ paths: ["/rare"] }, { labels: ["all"], paths: ["/rare"] }, { urls: [rare] }];
      for (const filter of filters) {
        for (const order of orders) {
          for (const count of [1, 2, 100]) {
            const expected = order === "earliestFirst" ? matching : matching.toReversed();
            const query = { account: "acc", filter, order, count };
            const listed = (sort: "created" | "due") =>
              readPages(
                (cursor) => fixture.store.read.listUnfinished({ ...query, sort, cursor }),
                ({ entries }) => entries.map(({ state }) => state.id),
              );
            expect(await listed("created")).toEqual(expected);
            expect(await listed("due")).toEqual(expected.toReversed());
            const logged = await readPages(
              (cursor) => fixture.store.read.log({ ...query, cursor }),
              ({ events }) => events.map(({ message, state }) => `${message.id} ${state}`),
            );
            expect(logged).toEqual(expected.map((id) => `${id} CREATED`));
          }
        }
      }
    });

    test("have all messages of the wanted times", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const start = fixture.clock.now;
      const ids: string[] = [];
      for (let n = 0; n < 6; n++) {
        // Messages that are accepted later are due earlier.
        const input = makeInput({ delay: 900_000 - n * 10_000, body: new Uint8Array(0) });
        const results = await fixture.publish(Array.from({ length: 60 }, () => input));
        ids.push(...results.flatMap((result) => ("messageId" in result ? [result.messageId] : [])));
        fixture.clock.now += 1_000;
      }
      const filter = { from: start + 1_000, to: start + 4_000 };
      const wanted = ids.slice(60, 300);
      const byDue = [240, 180, 120, 60].flatMap((first) => ids.slice(first, first + 60));
      for (const [sort, expected] of [["created", wanted] as const, ["due", byDue] as const]) {
        for (const order of orders) {
          for (const count of [10, 100]) {
            const listed = await readPages(
              (cursor) =>
                fixture.store.read.listUnfinished({ account: "acc", filter, sort, order, cursor, count }),
              ({ entries }) => entries.map(({ state }) => state.id),
            );
            expect(listed).toEqual(order === "earliestFirst" ? expected : expected.toReversed());
          }
        }
      }
    });

    test("have all runs and dead letters that match, however far apart they are", async () => {
      const fixture = await StoreFixture.open(open);
      fixture.capacity = { total: 1_000, perHost: 1_000 };
      await fixture.account();
      const names = Array.from({ length: 120 }, (_, n) => `run-${n}`);
      await failRuns(
        fixture,
        names.map((name, n) => makeStartInput(name, { url: n % 55 === 54 ? rare : usual })),
      );
      const matching = ["run-54", "run-109"];
      const filter = { hosts: ["rare.example"] };
      for (const count of [1, 100]) {
        const runs = await readPages(
          (cursor) => fixture.store.read.runs({ account: "acc", filter, cursor, count }),
          (page) => page.runs.map(({ runId }) => runId),
        );
        expect(runs).toEqual(matching.toReversed());
        for (const order of orders) {
          const dead = await readPages(
            (cursor) => fixture.store.read.deadLetters(makeLogQuery({ filter, order, cursor, count })),
            ({ entries }) => entries.map(({ deadLetter }) => deadLetter.run?.runId ?? ""),
          );
          expect(dead).toEqual(order === "earliestFirst" ? matching : matching.toReversed());
        }
      }
    });
  });
}
