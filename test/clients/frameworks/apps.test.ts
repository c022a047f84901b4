// @module-tag long
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { execPath } from "node:process";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { findFreePort } from "../../freePort.ts";
import { findPackages } from "../published/published.ts";
import type { WorkflowTestServer } from "../workflowTestServer.ts";
import { startWorkflowTestServer, waitForResult } from "../workflowTestServer.ts";
import { apps, workflow } from "./apps.ts";
import type { App } from "./apps.ts";

// npm run clients:frameworks: the development server of each framework, with a workflow whose steps run on.
// They need hundreds of megabytes from the npm registry, so no other command runs them.

const launch = join(import.meta.dirname, "../../../launch");
const expected = ["one", "two", "two", "three", "four", 7];

describe.runIf(process.env["TEST_FRAMEWORKS"] === "1")("frameworks", () => {
  let house: WorkflowTestServer;
  beforeAll(async () => {
    house = await startWorkflowTestServer("SQLite");
  });
  afterAll(() => house.close());

  const paths = apps.flatMap((app) =>
    (app.name === "next" ? ["/work", "/api/work"] : ["/work"]).map((path) => [app.name, path, app] as const),
  );
  test.each(paths)("%s, %s", async (_, path, app) => {
    const found = await findPackages(`app-${app.name}`, app.packages);
    if ("problem" in found) throw new Error(found.problem);
    writeApp(found.folder, app);
    const user = house.createUser();
    const port = await findFreePort();
    const origin = `http://127.0.0.1:${port}`;
    const base = `/${randomUUID()}`;
    const place = user.at(base + path, (request) => forward(request, origin + path));
    const output = startApp(found.folder, app.start(port), {
      ...{ QSTASH_URL: user.url, QSTASH_TOKEN: user.token },
      UPSTASH_WORKFLOW_URL: place.url.slice(0, -path.length),
    });
    await expect.poll(() => isOpen(origin)).toBe(true);
    const options = { url: place.url, body: { n: 7 }, retries: 2, retryDelay: "100" };
    const run = await user.workflows.trigger(options);
    const limit = new Promise((resolve) => setTimeout(resolve, 40_000));
    const result = await Promise.race([waitForResult(user, run).catch(String), limit]);
    expect(result, output.join("")).toEqual(expected);
    await expect.poll(() => place.calls.map(({ status }) => status)).toEqual([500, 200]);
  });
});

/** Writes the files of an app, and the package of the wrapper. */
function writeApp(folder: string, { files }: App): void {
  const wrapper = join(folder, "node_modules/waypost");
  mkdirSync(wrapper, { recursive: true });
  cpSync(join(launch, "workflow.js"), join(wrapper, "workflow.js"));
  const installed = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as object;
  const parts = {
    ...{ "package.json": JSON.stringify({ ...installed, type: "module" }), "work.js": workflow },
    ...files,
    "node_modules/waypost/package.json": JSON.stringify({
      ...{ name: "waypost", version: "0.0.0", type: "module" },
      exports: { "./workflow": "./workflow.js" },
    }),
  };
  for (const [name, text] of Object.entries(parts)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
}

/** Starts an app. Returns what it prints. */
function startApp(folder: string, args: readonly string[], env: Record<string, string>): string[] {
  const quiet = { NEXT_TELEMETRY_DISABLED: "1", ASTRO_TELEMETRY_DISABLED: "1", NODE_ENV: "development" };
  const child = spawn(execPath, args, {
    cwd: folder,
    env: { ...process.env, ...quiet, ...env, VITEST: "" },
    detached: true,
  });
  onTestFinished(() => {
    // Some frameworks start further processes.
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
  });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (data: Buffer) => void output.push(data.toString()));
  return output;
}

const isOpen = (origin: string): Promise<boolean> =>
  fetch(`${origin}/`).then(
    () => true,
    () => false,
  );

/** Sends a request to an app as a reverse proxy does. */
async function forward(request: Request, url: string): Promise<Response> {
  const headers = new Headers(request.headers);
  for (const name of ["connection", "host", "content-length", "transfer-encoding"]) headers.delete(name);
  headers.set("x-forwarded-proto", "http");
  const answer = await fetch(url, { method: "POST", headers, body: await request.arrayBuffer() });
  return new Response(await answer.arrayBuffer(), {
    status: answer.status,
    headers: { "content-type": answer.headers.get("content-type") ?? "text/plain" },
  });
}
