import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { waitForCount, waitForEnd, waitForResult } from "./workflowTestServer.ts";

/** Tests of steps that run in the endpoint, and of sleeps, alone and in parallel. */
export function steps(createUser: () => WorkflowUser): void {
  testSequences(createUser);
  testSleeps(createUser);
  testParallel(createUser);
}

function testSequences(createUser: () => WorkflowUser): void {
  test("each step is executed once, in order, with the results of the earlier steps", async () => {
    const user = createUser();
    const executed: string[] = [];
    const work = user.serve(async (context: WorkflowContext<{ item: string }>) => {
      const { item } = context.requestPayload;
      const first = await context.run("first", () => (executed.push("first"), `${item} 1`));
      const second = await context.run(
        "second",
        async () => (executed.push("second"), { first, list: [1, null, "ü €"] }),
      );
      const third = await context.run("third", () => void executed.push("third"));
      return {
        second,
        third: third === undefined,
        runId: context.workflowRunId,
        url: context.url,
        born: context.workflowRunCreatedAt,
      };
    });
    const run = await user.workflows.trigger({ url: work.url, body: { item: "tea" } });
    const { workflowRunCreatedAt, workflowRunResponse, workflowUrl } = await waitForEnd(user, run);
    expect(JSON.parse(workflowRunResponse ?? "")).toEqual({
      second: { first: "tea 1", list: [1, null, "ü €"] },
      third: true,
      runId: run.workflowRunId,
      url: work.url,
      born: workflowRunCreatedAt,
    });
    expect(workflowUrl).toBe(work.url);
    expect(executed).toEqual(["first", "second", "third"]);
    expect(await waitForCount(work, 4)).toBe(4);
    expect(work.calls.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  test("payloads and results of any kind arrive unchanged", async () => {
    const user = createUser();
    const work = user.serve(async (context) => {
      const { requestPayload } = context;
      const echo = await context.run("echo", () => requestPayload);
      return { was: echo ?? "nothing" };
    });
    const payloads = ["text", "", { deep: [{ ü: "€" }] }, 0, false, null, [1, 2]];
    for (const body of payloads) {
      const was = await waitForResult(user, await user.workflows.trigger({ url: work.url, body }));
      expect(was).toEqual({ was: body === "" || body === null ? "nothing" : body });
    }
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual({
      was: "nothing",
    });
    const silent = user.serve(async (context) => void (await context.run("only", () => 1)));
    expect(await waitForResult(user, await user.workflows.trigger({ url: silent.url }))).toBeUndefined();
  });

  test("the history of a run is available only while it is active", async () => {
    const user = createUser();
    const asked = Promise.withResolvers<void>();
    const entries = (workflowRunId: string) =>
      user
        .clientWith({ retry: false })
        .http.request<object[]>({ path: ["v2", "workflows", "runs", workflowRunId] });
    const seen: object[][] = [];
    const work = user.serve(async (context) => {
      await context.run("one", () => 1);
      await context.run("two", async () => void seen.push(await entries(context.workflowRunId)));
    });
    const run = await user.workflows.trigger({ url: work.url, body: "hi" });
    await waitForEnd(user, run);
    expect(seen).toEqual([
      [
        {
          messageId: work.calls[0]?.headers["upstash-message-id"],
          callType: "step",
          body: Buffer.from("hi").toString("base64"),
        },
        {
          messageId: work.calls[1]?.headers["upstash-message-id"],
          callType: "step",
          body: expect.any(String),
        },
      ],
    ]);
    await expect(entries(run.workflowRunId)).rejects.toMatchObject({ status: 404 });
    asked.resolve();
  });
}

function testSleeps(createUser: () => WorkflowUser): void {
  test("sleeps last as long as requested", async () => {
    const user = createUser();
    const times: number[] = [];
    const work = user.serve(async (context) => {
      await context.run("begin", () => void times.push(Date.now()));
      await context.sleep("as a number", 1);
      await context.run("between", () => void times.push(Date.now()));
      const until = await context.run("when", () => Math.ceil(Date.now() / 1000) + 1);
      await context.sleepUntil("until", until);
      await context.run("end", () => void times.push(Date.now()));
      // A time in the past ends the sleep at once.
      await context.sleepUntil("past", new Date(1_700_000_000_000));
      await context.sleep("as a string", "0s");
      return until;
    });
    const until = (await waitForResult(user, await user.workflows.trigger({ url: work.url }))) as number;
    const [begin = 0, between = 0, end = 0, ...others] = times;
    expect(others).toEqual([]);
    expect(between - begin).toBeGreaterThanOrEqual(1000);
    expect(end).toBeGreaterThanOrEqual(until * 1000);
    expect(await waitForCount(work, 9)).toBe(9);
  });
}

function testParallel(createUser: () => WorkflowUser): void {
  test("parallel steps and sleeps cost two calls each, and return every result", async () => {
    const user = createUser();
    const executed: string[] = [];
    const work = user.serve(async (context) => {
      const before = await context.run("before", () => "b");
      const together = await Promise.all([
        context.run("one", () => (executed.push("one"), `${before}1`)),
        context.sleep("nap", 1),
        context.run("two", async () => (executed.push("two"), `${before}2`)),
        context.sleepUntil("until", Date.now() / 1000 + 1),
      ]);
      return [...together, await context.run("after", () => "a")];
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual([
      "b1",
      null,
      "b2",
      null,
      "a",
    ]);
    expect(executed.toSorted()).toEqual(["one", "two"]);
    // The start, two single steps, and a plan and a result for each of four.
    expect(await waitForCount(work, 11)).toBe(11);
  });

  test("a sleep that is not awaited at once is one group with the next step", async () => {
    const user = createUser();
    const work = user.serve(async (context) => {
      const nap = context.sleep("nap", 1);
      const first = await context.run("first", () => 1);
      const [second, third] = await Promise.all([
        context.run("second", () => first + 1),
        context.run("third", () => first + 2),
      ]);
      await nap;
      const last = await context.run("last", () => second + third);
      return last;
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(5);
    // The start, two parallel steps, two parallel steps, and one single step.
    expect(await waitForCount(work, 1 + 4 + 4 + 1)).toBe(10);
  });

  test("branches of several steps continue together, and none runs twice", async () => {
    const user = createUser();
    const executed: string[] = [];
    const work = user.serve(async (context) => {
      const branch = async (name: string): Promise<string> => {
        const first = await context.run(`${name} 1`, () => (executed.push(`${name} 1`), name));
        const inner = await Promise.all(
          ["x", "y"].map((leaf) =>
            context.run(`${name} ${leaf}`, () => (executed.push(`${name} ${leaf}`), leaf)),
          ),
        );
        return [first, ...inner].join("");
      };
      return Promise.all([branch("a"), branch("b"), branch("c")]);
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual([
      "axy",
      "bxy",
      "cxy",
    ]);
    expect(executed.toSorted()).toEqual(["a 1", "a x", "a y", "b 1", "b x", "b y", "c 1", "c x", "c y"]);
    expect(await waitForCount(work, 1 + 6 + 12)).toBe(19);
  });

  test("many parallel steps: exactly one of the responses continues the run", async () => {
    const user = createUser();
    const executed: number[] = [];
    const finished: number[] = [];
    const work = user.serve(async (context) => {
      const all = await Promise.all(
        Array.from({ length: 24 }, (_, index) =>
          context.run(`step ${index}`, () => (executed.push(index), index)),
        ),
      );
      await context.run("sum", () => void finished.push(1));
      return all.reduce((sum, one) => sum + one, 0);
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(276);
    expect(executed.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 24 }, (_, index) => index));
    expect(finished).toEqual([1]);
    expect(await waitForCount(work, 1 + 48 + 1)).toBe(50);
  });
}
