import { expect, test } from "vitest";
import { forecastDrain } from "../../../../src/engine/core/explain/drain.ts";
import { minute } from "../../../../src/engine/core/values/time.ts";

const flow = (...minutes: readonly (readonly [published: number, ended: number])[]) =>
  minutes.map(([published, ended]) => ({ published, ended }));

test("a queue that shrinks is empty after its backlog at its pace, and sooner with more parallelism", () => {
  expect(forecastDrain({ waiting: 118, parallelism: 1, flow: flow([0, 2], [0, 2], [0, 2]) })).toEqual({
    publishedPerMinute: 0,
    sentPerMinute: 2,
    emptyIn: 59 * minute,
    faster: { parallelism: 5, emptyIn: 11.8 * minute },
  });
});

test("arrivals count against the pace, and a backlog that does not shrink has no end", () => {
  const growing = { waiting: 10, parallelism: 2, flow: flow([4, 3], [4, 3], [4, 3]) };
  expect(forecastDrain(growing)).toEqual({
    publishedPerMinute: 4,
    sentPerMinute: 3,
    emptyIn: null,
    // 15 would be sent in a minute, and 4 arrive.
    faster: { parallelism: 10, emptyIn: Math.round((10 / 11) * minute) },
  });
  expect(forecastDrain({ ...growing, flow: flow([1, 3]) })).toMatchObject({
    emptyIn: 5 * minute,
    faster: null,
  });
});

test("nothing is forecast without a limit, without messages, and without a known pace", () => {
  expect(forecastDrain({ waiting: 10, parallelism: null, flow: flow([9, 3]) }).faster).toBeNull();
  expect(forecastDrain({ waiting: 0, parallelism: 1, flow: flow([0, 0]) })).toMatchObject({
    ...{ emptyIn: 0, faster: null },
  });
  expect(forecastDrain({ waiting: 5, parallelism: 1, flow: null })).toEqual({
    ...{ publishedPerMinute: null, sentPerMinute: null, emptyIn: null, faster: null },
  });
});
