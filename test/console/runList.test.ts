import { expect, test } from "vitest";
import type { ListedRun } from "../../console/src/pages/runs/listedRun.ts";
import { describeRunWait, describeSteps, toSquares } from "../../console/src/pages/runs/listedRun.ts";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";

const makeRun = (workflowState: string, progress?: object): ListedRun =>
  ({ workflowState, historyEntries: 200, progress }) as unknown as ListedRun;

test("a square is a step, up to twelve, and the last one is where the run is", () => {
  expect(toSquares(makeRun("RUN_SUCCESS", { stepsDone: 2 }))).toEqual(["done", "done"]);
  expect(toSquares(makeRun("RUN_FAILED", { stepsDone: 1 }))).toEqual(["done", "failed"]);
  const waits = { stepsDone: 40, waitingOn: { reason: "event" } };
  expect(toSquares(makeRun("RUN_STARTED", waits))).toEqual([...Array(11).fill("done"), "waits"]);
  expect(toSquares(makeRun("RUN_STARTED", { stepsDone: 0 }))).toEqual(["runs"]);
  expect(toSquares(makeRun("RUN_STARTED"))).toEqual([]);
  expect(describeSteps(makeRun("RUN_STARTED"))).toBe("200 entries");
});

test("a run of the list says what it waits for", () => {
  const show = (waitingOn: object): string => {
    const {
      text = "",
      name = "",
      when = "",
    } = describeRunWait(makeRun("RUN_STARTED", { stepsDone: 1, waitingOn }), 10_000) ?? {};
    return [text, name, when].filter(Boolean).join(" | ");
  };
  expect(show({ reason: "run", workflowRunId: "wfr_1" })).toBe("waits for run | wfr_1");
  expect(show({ reason: "retry", until: 13_000 })).toBe("retries the call of its endpoint | in 3 s");
  expect(show({ reason: "sending", since: 8_000 })).toBe("calls its endpoint | for 2 s");
  expect(show({ reason: "held", gate: "queue" })).toBe("held at gate | queue");
  expect(describeRunWait(makeRun("RUN_FAILED"), 0)).toBeNull();
});

describeConsole("the list of runs", (open) => {
  test("shows steps as squares, what a run waits for, and the button that helps", async () => {
    const { page, server } = open;
    await openPage(page, server, "/runs");
    const waits = page.getByRole("row").filter({ hasText: "order-48220" });
    await expectShown(waits.getByText("waits for event shipped-order-48220"));
    expect(await waits.locator(".squares .done").count()).toBe(4);
    expect(await waits.locator(".squares .waits").count()).toBe(1);
    await waits.getByRole("button", { name: "Notify" }).click();
    await expectShown(page.getByRole("dialog").getByRole("button", { name: "Notify" }));
    expect(await findViolations(page)).toEqual([]);
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    const failed = page.getByRole("row").filter({ hasText: "order-48214" });
    expect(await failed.locator(".squares .failed").count()).toBe(1);
    expect(await findViolations(page)).toEqual([]);
    server.destinations.failsReceipt = false;
    await failed.getByRole("button", { name: "Resume" }).click();
    await expectShown(page.getByText("The run is resumed from the failed step"));
  });
});
