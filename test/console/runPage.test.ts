import { expect, test } from "vitest";
import type { Run } from "../../console/src/pages/runs/shapes.ts";
import { compareRuns } from "../../console/src/pages/runs/compareRuns.ts";
import { findGiven, readError } from "../../console/src/pages/runs/stepInput.ts";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";

const step = (stepName: string, out?: string, more: object = {}) => ({
  type: "sequential",
  steps: [
    { stepName, stepType: "Run", state: "STEP_SUCCESS", createdAt: 1, out, messageId: stepName, ...more },
  ],
});
const makeRun = (...steps: object[]): Run => ({ workflowRunCreatedAt: 0, steps }) as unknown as Run;

test("runs are compared step by step, also steps of the same name", () => {
  const failed = makeRun(step("a", "1"), step("page", "1"), step("page", "2"), step("b"), step("c"));
  const good = makeRun(
    step("a", "1"),
    step("page", "1"),
    step("page", "3"),
    step("b", undefined, { state: "STEP_FAILED" }),
    step("d", "4"),
  );
  expect(compareRuns(failed, good).map(({ name, verdict }) => `${name}: ${verdict}`)).toEqual([
    "a: same",
    "page: same",
    "page: result",
    "b: state",
    "c: only-here",
    "d: only-there",
  ]);
});

test("a step was given the results of the group before it", () => {
  const run = makeRun(step("init", "{}"), step("a", "1"), step("sleep"), step("b"));
  const given = findGiven(run, { stepType: "Run", messageId: "b" });
  expect(given.map(({ stepName }) => stepName)).toEqual(["a"]);
  expect(findGiven(run, { stepType: "Run", messageId: "unknown" })).toEqual([]);
});

test("the error of a response has its name, its message and its stack", () => {
  const stack = `TypeError: no\n    at one (a.ts:1)\n    at two (b.ts:2)\n${"    at three\n".repeat(50)}`;
  const shown = readError(JSON.stringify({ error: "TypeError", message: "no", stack }));
  expect(shown).toMatchObject({ name: "TypeError", message: "no" });
  expect(shown?.stack.slice(0, 2)).toEqual(["at one (a.ts:1)", "at two (b.ts:2)"]);
  expect(shown?.stack.length).toBe(8);
  for (const other of ["", "null", "[]", '"text"', "{}", '{"message": 1}', "<html>"])
    expect(readError(other)).toBeNull();
});

describeConsole("the page of a run", (open) => {
  test("shows the failed step with its stack and input, and how many others failed", async () => {
    const { page, server } = open;
    await openPage(page, server, "/runs/order-48213");
    const detail = page.locator(".tl-detail");
    await expectShown(detail.getByText("Error of attempt 1, 500"));
    await expectShown(detail.locator(".err .fade").filter({ hasText: "receipt.ts" }).first());
    await expectShown(detail.getByText("Result of “invoice”"));
    await expectShown(page.getByText("1 other run failed here with this error"));
    await page.getByRole("link", { name: "Payload", exact: true }).click();
    await expectShown(page.getByLabel("Payload of the run", { exact: true }).getByText("order-48213"));
    await page.getByRole("link", { name: "Log", exact: true }).click();
    await expectShown(page.getByRole("table", { name: "Log of the run" }).getByText("Run failed"));
    expect(await findViolations(page)).toEqual([]);
    await page.getByRole("link", { name: "Compare", exact: true }).click();
    const row = page.getByRole("row").filter({ hasText: "send receipt" });
    await expectShown(row.getByText("Failed"));
    await expectShown(row.getByText('"sent":true'));
    await expectShown(page.getByRole("link", { name: "order-48201" }));
    expect(await findViolations(page)).toEqual([]);
  });

  test("the failed step is in view when the page opens in a low window", async () => {
    const { page, server } = open;
    await page.setViewportSize({ width: 1280, height: 500 });
    await openPage(page, server, "/runs/order-48213");
    await expect
      .poll(async () => (await page.locator(".tl-row.open").boundingBox())?.y ?? 999)
      .toBeLessThan(200);
    expect((await page.locator(".tl-detail").boundingBox())?.y).toBeGreaterThan(90);
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test("says what a run waits for, and notifies the event", async () => {
    const { page, server } = open;
    await openPage(page, server, "/runs/order-48220");
    const waits = page.getByRole("region", { name: "What this run waits for" });
    await expectShown(waits.getByText("Waits for event shipped-order-48220"));
    await expectShown(waits.getByText(/step “shipped”, since .*, until/));
    await expectShown(page.locator(".lane text").filter({ hasText: /^waiting for/ }));
    expect(await findViolations(page)).toEqual([]);
    await waits.getByRole("button", { name: "Notify" }).click();
    await page.getByRole("textbox", { name: /^Data/ }).fill('{"by": "courier"}');
    await page.getByRole("dialog").getByRole("button", { name: "Notify" }).click();
    await waits.waitFor({ state: "detached" });
    await page.locator(".tl-row").getByRole("button", { name: "shipped" }).click();
    await expectShown(page.locator(".lane text").filter({ hasText: /^waited/ }));
    await expectShown(page.getByLabel("Event of shipped", { exact: true }).getByText("courier"));
  });

  test("resumes all runs that failed here, after a dry run", async () => {
    const { page, server } = open;
    server.destinations.failsReceipt = false;
    await openPage(page, server, "/runs/order-48213");
    await page.getByRole("button", { name: /^Resume all \d$/ }).click();
    const plan = page.getByRole("region", { name: "Resume failed runs" });
    await expectShown(plan.getByText("would be resumed"));
    expect(await findViolations(page)).toEqual([]);
    await plan.getByRole("button", { name: /^Resume \d$/ }).click();
    const dialog = page.getByRole("dialog");
    if (await dialog.isVisible()) await dialog.getByRole("button", { name: /^Resume \d$/ }).click();
    await page.locator("dl").getByText("Resumed as").locator("..").getByRole("link").click();
    await expectShown(page.locator(".hero").getByText("Success"));
  });
});
