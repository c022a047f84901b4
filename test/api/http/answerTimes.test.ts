import { expect, test } from "vitest";
import { AnswerTimes, answerTime, type TimedRequest } from "../../../src/api/http/answerTime.ts";

/** A timer of which the test decides when its time has passed, and how late it is. */
class OneTimer {
  wake: (() => void) | null = null;
  started = 0;
  now = 0.5;

  readonly elapsed = (): number => this.now;

  readonly wakeAfter = (after: number, wake: () => void): (() => void) => {
    if (this.wake !== null || after !== 1_000) throw new Error("one timer of a second must be enough");
    this.started++;
    this.wake = wake;
    return () => (this.wake = null);
  };

  pass(late = 0): void {
    const { wake } = this;
    this.wake = null;
    this.now += 1_000 + late;
    wake?.();
  }
}

const newRequest = () => {
  const refusals: string[] = [];
  const request: TimedRequest = { endsAt: 0, refuseLate: ({ code }) => void refusals.push(code) };
  return { request, refusals };
};

test("a request that does not end is refused once, in at most the time of an answer", () => {
  const timer = new OneTimer();
  const times = new AnswerTimes(timer);
  const [first, second] = [newRequest(), newRequest()];
  times.begin(first.request);
  timer.pass();
  times.begin(second.request);
  for (let passed = 1; passed < answerTime / 1_000; passed++) {
    expect(first.refusals).toEqual([]);
    timer.pass();
  }
  expect([first.refusals, second.refusals]).toEqual([["outcome-unknown"], []]);
  expect(times.end(first.request)).toBe(false);
  timer.pass();
  expect(second.refusals).toEqual(["outcome-unknown"]);
  timer.pass();
  expect([first.refusals.length, second.refusals.length]).toEqual([1, 1]);
});

test.each([10, 150, 700, 999])("a request is refused in time if each timer is %i ms late", (late) => {
  const timer = new OneTimer();
  const times = new AnswerTimes(timer);
  const begun = timer.now;
  const { request, refusals } = newRequest();
  times.begin(request);
  while (refusals.length === 0) timer.pass(late);
  expect(timer.now - begun).toBeGreaterThan(answerTime - 1_000);
  expect(timer.now - begun).toBeLessThanOrEqual(15_000);
});

test("a request that has ended is not refused, and requests of one second share one timer", () => {
  const timer = new OneTimer();
  const times = new AnswerTimes(timer);
  const requests = Array.from({ length: 100 }, newRequest);
  for (const { request } of requests) {
    times.begin(request);
    expect(times.end(request)).toBe(true);
  }
  expect(timer.started).toBe(1);
  timer.pass();
  expect(timer.wake).toBeNull();
  for (const { request } of requests) times.begin(request);
  for (const { request } of requests) times.end(request);
  expect(timer.started).toBe(2);
  timer.pass();
  timer.pass();
  expect(timer.started).toBe(2);
  expect(requests.flatMap(({ refusals }) => refusals)).toEqual([]);
});
