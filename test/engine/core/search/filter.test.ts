import { describe, expect, test } from "vitest";
import type { Filter, FilteredItem } from "../../../../src/engine/core/search/filter.ts";
import { matchesFilter } from "../../../../src/engine/core/search/filter.ts";
import type { StoredMessage } from "../../../../src/engine/core/model/message.ts";
import { makeInput, noon } from "../commandRunner.ts";

const { delay: _delay, ...input } = makeInput({
  url: "https://Shop.example:8443/a/b?c=d",
  labels: ["new", "red"],
  callerIp: "192.0.2.1",
});
const message: StoredMessage = {
  ...input,
  account: "acme",
  id: "msg_1",
  createdAt: noon,
  notBefore: noon,
  retries: 3,
  timeout: 1000,
  startedAtOnce: false,
};
const seen: FilteredItem = { message, time: noon, dlqId: "dlq-1", state: "FAILED", responseStatus: 503 };

describe("a message matches the filter", () => {
  test.each<[Filter, boolean]>([
    [{}, true],
    [{ messageIds: ["msg_0", "msg_1"] }, true],
    [{ messageIds: ["msg_0"] }, false],
    [{ messageIds: [] }, false],
    [{ dlqIds: ["dlq-1"] }, true],
    [{ dlqIds: ["dlq-2"] }, false],
    [{ urls: ["https://Shop.example:8443/a/b?c=d"] }, true],
    [{ urls: ["https://shop.example:8443/a/b"] }, false],
    [{ hosts: ["shop.example:8443"] }, true],
    [{ hosts: ["SHOP.example:8443"] }, true],
    [{ hosts: ["shop.example"] }, false],
    [{ paths: ["/a/b"] }, true],
    [{ paths: ["/a"] }, false],
    [{ labels: ["red", "blue"] }, true],
    [{ labels: ["blue"] }, false],
    [{ callerIps: ["192.0.2.1"] }, true],
    [{ callerIps: ["192.0.2.2"] }, false],
    [{ states: ["FAILED", "ERROR"] }, true],
    [{ states: ["DELIVERED"] }, false],
    [{ responseStatuses: [503] }, true],
    [{ responseStatuses: [500] }, false],
    [{ from: noon, to: noon }, true],
    [{ from: noon + 1 }, false],
    [{ to: noon - 1 }, false],
    [{ topicNames: ["a"] }, false],
    [{ queueNames: ["a"] }, false],
    [{ scheduleIds: ["a"] }, false],
    [{ flowControlKeys: ["a"] }, false],
    [{ labels: ["red"], hosts: ["shop.example:8443"] }, true],
    [{ labels: ["red"], hosts: ["other.example"] }, false],
  ])("%j: %s", (filter, expected) => {
    expect(matchesFilter(filter, seen)).toBe(expected);
  });

  describe("for dead letters", () => {
    const run = {
      key: "run_1",
      runId: "order-1",
      createdAt: noon,
      url: "https://shop.example/flow",
      failureUrl: null,
    };
    const failed = { failureCallback: { state: "CALLBACK_FAIL" as const } };
    const ofRun: FilteredItem = { ...seen, deadLetter: { ...failed, run, tags: [] } };
    const ofMessage: FilteredItem = { ...seen, deadLetter: { ...failed, tags: ["cause:0a", "label:0b"] } };

    test.each<[Filter, boolean, boolean]>([
      [{}, true, true],
      [{ belongsToRun: true }, true, false],
      [{ causes: ["0b", "0a"] }, false, true],
      [{ causes: ["0b", "a"] }, false, false],
      [{ causes: [] }, false, false],
      [{ belongsToRun: false }, false, true],
      [{ runIdStarts: ["order-1"] }, true, false],
      [{ runIds: ["other", "order-1"] }, true, false],
      [{ runIds: ["order-"] }, false, false],
      [{ runIdStarts: ["other", "ord"] }, true, false],
      [{ runIdStarts: ["order-10"] }, false, false],
      [{ runIdStarts: ["%"] }, false, false],
      [{ runUrls: ["https://shop.example/flow"] }, true, false],
      [{ runUrls: ["https://shop.example/"] }, false, false],
      [{ runsCreatedAt: [noon, 1] }, true, false],
      [{ runsCreatedAt: [noon + 1] }, false, false],
      [{ callbackStates: ["CALLBACK_FAIL"] }, true, false],
      [{ callbackStates: ["CALLBACK_SUCCESS"] }, false, false],
    ])("%o", (filter, run, message) => {
      expect([matchesFilter(filter, ofRun), matchesFilter(filter, ofMessage)]).toEqual([run, message]);
    });
  });

  test("a filter never matches a property that an item does not have", () => {
    const bare: FilteredItem = {
      message: { ...message, callerIp: null, labels: [] },
      time: noon,
      responseStatus: null,
    };
    for (const filter of [
      { dlqIds: ["dlq-1"] },
      { states: ["FAILED" as const] },
      { responseStatuses: [503] },
      { callerIps: ["192.0.2.1"] },
      { labels: ["red"] },
    ]) {
      expect(matchesFilter(filter, bare), JSON.stringify(filter)).toBe(false);
    }
  });
});
