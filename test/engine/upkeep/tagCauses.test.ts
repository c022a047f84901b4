import { expect, test } from "vitest";
import { createCauseTask } from "../../../src/engine/upkeep/tagCauses.ts";
import { day, second } from "../../../src/engine/core/values/time.ts";
import { memoryStore, Memory } from "../../model/memoryStore.ts";
import { failRuns, makeStartInput } from "../store/contract/failedRuns.ts";
import { createSource, createSteppedClock, StoreFixture } from "../store/storeFixture.ts";

test("old dead letters get their causes after the start, and then once a day", async () => {
  const memory = new Memory();
  const fixture = await StoreFixture.open(async (clock, node) =>
    memoryStore(createSource(clock, node), memory),
  );
  await fixture.account();
  await fixture.account("empty");
  const ids = [];
  for (let at = 0; at < 3; at++) ids.push((await fixture.publishFailing()).dlqId);
  await failRuns(fixture, [makeStartInput("wfr_1"), makeStartInput("wfr_2")]);
  const withCauses = new Map(memory.tables.deadLetters);
  const tags = [...memory.tables.tags.keys()];
  for (const [key, { cause: _cause, ...row }] of withCauses)
    memory.tables.deadLetters.set(key, { ...row, tags: row.tags.filter((tag) => !tag.includes("cause:")) });
  for (const key of tags) if (key.includes("cause:")) memory.tables.tags.delete(key);
  const clock = createSteppedClock(fixture.clock);
  const task = createCauseTask({ store: fixture.store, clock });
  expect((await task.nextAt()) - clock.now()).toBe(10 * second);
  for (let round = 0; round < 10 && (await task.nextAt()) - clock.now() < day; round++) await task.run();
  expect((await task.nextAt()) - clock.now()).toBe(day);
  expect(memory.tables.deadLetters).toEqual(withCauses);
  expect([...memory.tables.tags.keys()].sort()).toEqual(tags.sort());
  expect(await fixture.store.execute("tagCauses", { account: "acc", dlqIds: [...ids, "none"] })).toEqual({
    tagged: 0,
  });
});
