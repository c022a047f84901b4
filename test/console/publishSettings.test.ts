import { expect, test } from "vitest";
import type { Draft, Kind } from "../../console/src/pages/tools/publishSettings.ts";
import { emptyDraft, listSettings, toHeaders } from "../../console/src/pages/tools/publishSettings.ts";
import { settingRows } from "../../src/api/settings/table.ts";

const names = (kind: Kind): string[] => listSettings(kind).map(({ name }) => name);
/** Fields of the form that are not in its list of settings. */
const ownFields = new Set(["method", "queue-name"]);

test("the form has every setting of a message and of a schedule", () => {
  const all = Object.keys(settingRows).filter((name) => !ownFields.has(name));
  expect(all.filter((name) => !names("schedule").includes(name))).toEqual([]);
  const forMessages = all.filter((name) => !["cron", "schedule-id"].includes(name));
  expect(forMessages.filter((name) => !names("message").includes(name))).toEqual([]);
});

test.each(["callback", "failure-callback"])("the form has every setting that a %s may have", (callback) => {
  const all = Object.entries(settingRows)
    .filter(([, { forCallbacks }]) => forCallbacks === true)
    .map(([name]) => `${callback}-${name}`);
  expect(all.length).toBeGreaterThan(9);
  expect(all.filter((name) => !names("message").includes(name))).toEqual([]);
});

test("the form has no setting that the API does not know", () => {
  const known = (name: string): boolean => {
    const [, rest = name] = /^(?:failure-)?callback-(.+)$/.exec(name) ?? [];
    return rest in settingRows || ["forward", "workflow-runid"].includes(rest);
  };
  for (const kind of ["message", "run", "schedule"] as const)
    expect(names(kind).filter((name) => !known(name))).toEqual([]);
});

test("a setting of another kind is not sent", () => {
  const draft: Draft = { ...emptyDraft, values: { cron: "* * * * *", "workflow-runid": "r", delay: " 5s " } };
  expect(toHeaders(draft)).toEqual({ "Content-Type": "application/json", "Svc-Delay": "5s" });
});

test("headers of a delivery, and a time, are written as the API takes them", () => {
  const values = {
    forward: "Authorization: Bearer a:b\nX-Two: 1\nX-Two: 2",
    "callback-forward": "X-Key: k",
    "not-before": "2030-01-02T03:04",
  };
  const time = new Date(2030, 0, 2, 3, 4).getTime() / 1_000;
  expect(toHeaders({ ...emptyDraft, type: "", method: "PUT", values })).toEqual({
    "Svc-Method": "PUT",
    "Svc-Forward-Authorization": "Bearer a:b",
    "Svc-Forward-X-Two": "1, 2",
    "Svc-Callback-Forward-X-Key": "k",
    "Svc-Not-Before": String(time),
  });
});
