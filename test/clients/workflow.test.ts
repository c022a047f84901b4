import { Client, WorkflowContext } from "@upstash/workflow";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Methods } from "./methods.ts";
import { watchMethods } from "./methods.ts";
import { accounts } from "./workflowAccounts.ts";
import { calls } from "./workflowCalls.ts";
import { workflowDeadLetters } from "./workflowDeadLetters.ts";
import { events } from "./workflowEvents.ts";
import { failures } from "./workflowFailures.ts";
import type { WorkflowTestServer } from "./workflowTestServer.ts";
import { startWorkflowTestServer } from "./workflowTestServer.ts";
import { invokes } from "./workflowInvoke.ts";
import { large } from "./workflowLarge.ts";
import { logs } from "./workflowLogs.ts";
import { older } from "./workflowOlder.ts";
import { runs } from "./workflowRuns.ts";
import { starts } from "./workflowStarts.ts";
import { steps } from "./workflowSteps.ts";

/** Members of the package that never return or do not concern this server, and why. */
const exceptions: Readonly<Record<string, string>> = {
  "context.api": "calls the APIs of others through context.call",
  "context.cancel": "always throws; see the test of a workflow that cancels itself",
};

/** The tests of each part. `createUser` creates a user with a new account. */
const suites = {
  steps,
  calls,
  events,
  invoking: invokes,
  failing: failures,
  runs,
  starts,
  logs,
  large,
  accounts,
  "dead letters": workflowDeadLetters,
  "the older package": older,
};

/**
 * The published workflow package, client and endpoints, unmodified, against the whole server on each of its
 * stores.
 */
describe("on SQLite", () => {
  describeClientOn("SQLite");
});
describe("on PostgreSQL", { tags: "long" }, () => {
  describeClientOn("PostgreSQL");
});

function describeClientOn(store: "SQLite" | "PostgreSQL"): void {
  let house: WorkflowTestServer;
  let methods: Methods;

  beforeAll(async () => {
    methods = watchMethods(classes());
    // The package writes every failure to the console, and steps that ran twice.
    for (const level of ["error", "warn"] as const) vi.spyOn(console, level).mockReturnValue(undefined);
    house = await startWorkflowTestServer(store);
  });

  afterAll(async () => {
    methods.unwatch();
    vi.restoreAllMocks();
    await house.close();
  });

  // The tests mostly wait.
  describe.concurrent.each(Object.entries(suites))("%s", (_, suite) => {
    suite(() => house.createUser());
  });

  describe("the package as a whole", () => {
    test("has no untested method except those that never return or do not concern this server", () => {
      expect(methods.offered).toEqual(
        expect.arrayContaining(["client.trigger", "dlq.retryFailureFunction", "context.waitForWebhook"]),
      );
      expect(methods.offered.filter((name) => !methods.answered.has(name)).toSorted()).toEqual(
        Object.keys(exceptions).toSorted(),
      );
    });
  });
}

/** Returns an object of each class of the package, by the name that users know. */
function classes(): Map<string, object> {
  const client = new Client({ baseUrl: "http://127.0.0.1:1", token: "none" });
  return new Map<string, object>([
    ["client", client],
    ["dlq", client.dlq],
    ["context", Object.create(WorkflowContext.prototype) as object],
  ]);
}
