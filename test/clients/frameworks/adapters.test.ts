// @module-tag long
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { runOn } from "../../../launch/workflow.js";
import { findPackages } from "../published/published.ts";
import { shareWorkflowServer, waitForResult } from "../workflowTestServer.ts";
import type { Framework, Route } from "./adapters.ts";
import { frameworks, startHost } from "./adapters.ts";

// Steps that run on, with the adapter of the client for each framework, in both versions of the client.

const servers = ["express@5.3.0", "h3@1.15.4", "hono@4.13.19", "@hono/node-server@2.1.9"];

const house = shareWorkflowServer();

describe.each(["1.3.3", "0.2.23"])("client %s", (version) => {
  let folder: string | null = null;
  beforeAll(async () => {
    const found = await findPackages(`frameworks-${version}`, [`@upstash/workflow@${version}`, ...servers]);
    if ("problem" in found) process.stderr.write(`skipped: ${found.problem}\n`);
    else folder = found.folder;
  });

  /** Serves a route, and returns the result of a run and the status of each call. */
  async function run(home: string, framework: Framework, route: Route) {
    const load = createRequire(join(home, "index.js"));
    const user = house.createUser();
    const host = await startHost((url) =>
      framework.host({
        ...{ load, route, url },
        options: { qstashClient: user.client, receiver: user.receiver, env: {} },
      }),
    );
    try {
      const given = { url: host.url, body: { n: 1 }, retries: 2, retryDelay: "10" };
      const result = await waitForResult(user, await user.workflows.trigger(given));
      await expect.poll(host.isIdle).toBe(true);
      return { result, answered: host.answered };
    } finally {
      host.close();
    }
  }

  const named = frameworks.map((framework) => [framework.name, framework] as const);
  describe.each(named)("%s", (_, framework) => {
    const find = (skip: (note?: string) => never): string => {
      if (folder === null) return skip("the packages cannot be installed");
      const file = join(folder, "node_modules/@upstash/workflow", `${framework.adapter}.js`);
      return existsSync(file) ? folder : skip("this version has no such adapter");
    };

    test("five steps take one call, and six without the wrapper", async ({ skip }) => {
      const home = find(skip);
      const executed: number[] = [];
      const route: Route = async (context) => {
        let sum = 0;
        for (const step of [1, 2, 3, 4, 5])
          sum = await context.run(`step ${step}`, () => (executed.push(step), sum + step));
        return sum;
      };
      expect(await run(home, framework, runOn(route))).toEqual({ result: 15, answered: [200] });
      expect(executed).toEqual([1, 2, 3, 4, 5]);
      if (version === "0.2.23") return;
      const { result, answered } = await run(home, framework, route);
      expect({ result, calls: answered.length }).toEqual({ result: 15, calls: 6 });
    });

    test("a step that fails is executed again, alone", async ({ skip }) => {
      const home = find(skip);
      const executed: string[] = [];
      const route: Route = async (context) => {
        await context.run("one", () => void executed.push("one"));
        const two = await context.run("two", async () => {
          executed.push("two");
          if (executed.length < 4) throw new Error("not yet");
          return new Date(0);
        });
        return context.run("three", () => (executed.push("three"), { two }));
      };
      const { result, answered } = await run(home, framework, runOn(route));
      expect(result).toEqual({ two: "1970-01-01T00:00:00.000Z" });
      expect(answered).toEqual([500, 500, 200]);
      expect(executed).toEqual(["one", "two", "two", "two", "three"]);
    });
  });

  // Only this adapter passes more than the context.
  test("a route of Astro gets the context of Astro", async ({ skip }) => {
    const framework = frameworks.find(({ adapter }) => adapter === "astro");
    if (folder === null || !framework) return skip("the packages cannot be installed");
    const route: Route = async (context, event) => {
      const { request } = event as { request: Request };
      return context.run("one", () => new URL(request.url).pathname);
    };
    expect(await run(folder, framework, runOn(route))).toEqual({ result: "/work", answered: [200] });
  });
});
