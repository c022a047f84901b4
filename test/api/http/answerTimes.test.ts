import { expect, test } from "vitest";
import { AnswerTimes, answerTime, type TimedRequest } from "../../../src/api/http/answerTime.ts";

/** A timer of which the test decides when its time has passed. */
class OneTimer {
  wake: (() => void) | null = null;
  started = 0;

  readonly wakeAfter = (after: number, wake: () => void): (() => void) => {
    if (this.wake !== null || after !== 1_000) throw new Error("one timer of a second must be enough");
    this.started++;
    this.wake = wake;
    return () => (this.wake = null);
  };

  pass(): void {
    const { wake } = this;
    this.wake = null;
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
  const times = new AnswerTimes(timer.wakeAfter);
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

test("a request that has ended is not refused, and the timer runs only while a request is open", () => {
  const timer = new OneTimer();
  const times = new AnswerTimes(timer.wakeAfter);
  const [first, second] = [newRequest(), newRequest()];
  times.begin(first.request);
  times.begin(second.request);
  expect(timer.started).toBe(1);
  expect(times.end(first.request)).toBe(true);
  expect(timer.wake).not.toBeNull();
  expect(times.end(second.request)).toBe(true);
  expect(timer.wake).toBeNull();
  expect([first.refusals, second.refusals]).toEqual([[], []]);
});
