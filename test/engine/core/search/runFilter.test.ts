import { expect, test } from "vitest";
import type { Run } from "../../../../src/engine/core/model/run.ts";
import type { RunFilter } from "../../../../src/engine/core/search/runFilter.ts";
import { matchesRunFilter, listWantedRunTags } from "../../../../src/engine/core/search/runFilter.ts";
import { toTag } from "../../../../src/engine/core/search/tags.ts";

const url = "https://shop.example/orders/1";
const run = {
  runId: "wfr_1",
  url,
  createdAt: 10,
  state: "RUN_SUCCESS",
  labels: ["a", "b"],
  callerIp: null,
  settings: { flowControl: { key: "k" } },
} as unknown as Run;

test.each<[RunFilter, boolean]>([
  [{}, true],
  [{ from: 10, to: 10 }, true],
  [{ from: 11 }, false],
  [{ to: 9 }, false],
  [{ createdAt: 10 }, true],
  [{ createdAt: 9 }, false],
  [{ runIds: ["wfr_0", "wfr_1"] }, true],
  [{ runIds: ["wfr_0"] }, false],
  [{ runIds: [] }, false],
  [{ urls: [url] }, true],
  [{ urls: ["https://shop.example/orders"] }, false],
  [{ urlStarts: ["https://shop.example/orders"] }, true],
  [{ urlStarts: ["https://shop.example/other"] }, false],
  [{ hosts: ["shop.example"] }, true],
  [{ hosts: ["other.example"] }, false],
  [{ paths: ["/orders/1"] }, true],
  [{ paths: ["/orders"] }, false],
  [{ states: ["RUN_FAILED", "RUN_SUCCESS"] }, true],
  [{ states: ["RUN_FAILED"] }, false],
  [{ callerIps: ["::1"] }, false],
  [{ flowControlKeys: ["k"] }, true],
  [{ flowControlKeys: ["l"] }, false],
  [{ labels: ["c", "b"] }, true],
  [{ labels: ["c"] }, false],
  [{ runs: [{ runId: "wfr_1", createdAt: 10 }] }, true],
  [{ runs: [{ runId: "wfr_1", createdAt: 11 }] }, false],
  [{ runs: [{ runId: "wfr_2", createdAt: 10 }] }, false],
  [{ labels: ["a"], states: ["RUN_FAILED"] }, false],
])("a run matches the filter %j: %s", (filter, passes) => {
  expect(matchesRunFilter(filter, run)).toBe(passes);
});

test("a run without a key or with a caller is filtered by both", () => {
  expect(
    matchesRunFilter({ flowControlKeys: ["k"] }, {
      ...run,
      settings: { flowControl: null },
    } as unknown as Run),
  ).toBe(false);
  expect(matchesRunFilter({ callerIps: ["::1"] }, { ...run, callerIp: "::1" })).toBe(true);
});

test("a filter uses the tags that runs have", () => {
  expect(listWantedRunTags({ hosts: ["shop.example"], from: 1 })).toEqual([]);
  expect(
    listWantedRunTags({
      runIds: ["wfr_1"],
      runs: [{ runId: "wfr_2", createdAt: 1 }],
      urls: [url],
      states: ["RUN_FAILED"],
    }),
  ).toEqual([[toTag.run("wfr_1")], [toTag.run("wfr_2")], [toTag.url(url)], [toTag.state("RUN_FAILED")]]);
  expect(listWantedRunTags({ labels: ["a", "b"], flowControlKeys: ["k"], callerIps: ["::1"] })).toEqual([
    [toTag.label("a"), toTag.label("b")],
    [toTag.key("k")],
    [toTag.callerIp("::1")],
  ]);
});
