import { afterAll, beforeAll, describe, vi } from "vitest";
import { calls } from "./workflowCalls.ts";
import { workflowDeadLetters } from "./workflowDeadLetters.ts";
import { events } from "./workflowEvents.ts";
import { failing } from "./workflowFailures.ts";
import type { WorkflowHouse } from "./workflowHouse.ts";
import { startWorkflowHouse } from "./workflowHouse.ts";
import { invoking } from "./workflowInvoke.ts";
import { large } from "./workflowLarge.ts";
import { logs } from "./workflowLogs.ts";
import { runs } from "./workflowRuns.ts";
import { starts } from "./workflowStarts.ts";
import { steps } from "./workflowSteps.ts";
import { accounts } from "./workflowAccounts.ts";

vi.mock("@upstash/workflow", () => import("workflow-0.2"));
vi.mock("@upstash/workflow/cloudflare", () => import("workflow-0.2/cloudflare"));

const suites = { steps, calls, events, invoking, failing, runs, starts, logs, large, accounts, "dead letters": workflowDeadLetters };

describe("version 0.2 of the workflow package", () => {
  let house: WorkflowHouse;

  beforeAll(async () => {
    for (const level of ["error", "warn"] as const) vi.spyOn(console, level).mockReturnValue(undefined);
    house = await startWorkflowHouse("SQLite");
  });

  afterAll(async () => {
    vi.restoreAllMocks();
    await house.close();
  });

  describe.concurrent.each(Object.entries(suites))("%s", (_, suite) => {
    suite(() => house.author());
  });
});
