import { describe, expect, test } from "vitest";
import type { RunPart } from "../../src/core/message.ts";
import { call, httpDestination } from "./destination.ts";

const part: RunPart = { run: "run_1", runId: "wfr_1", createdAt: 1_800_000_000_000, kind: "step", slot: "i", position: 0, size: 2 };

describe("a call to the endpoint of a run", () => {
  const headersOf = async (changes: Parameters<typeof call>[1]): Promise<Record<string, unknown>> => {
    let seen: Record<string, unknown> = {};
    const port = await httpDestination((incoming, response) => {
      seen = incoming.headers;
      response.end();
    });
    await call(`http://127.0.0.1:${port}/`, changes);
    return seen;
  };

  test("names the run, under both brands when it was started under the neutral one", async () => {
    const headers = [
      ["Svc-Workflow-Sdk-Version", "1"],
      ["Svc-Label", "a"],
      ["Svc-Mine", "b"],
    ] as const;
    const seen = await headersOf({ brand: "svc", headers, run: part });
    for (const prefix of ["svc", "upstash"]) {
      expect(seen).toMatchObject({
        [`${prefix}-workflow-runid`]: "wfr_1",
        [`${prefix}-workflow-createdat`]: "1800000000000",
        [`${prefix}-workflow-sdk-version`]: "1",
        [`${prefix}-label`]: "a",
        [`${prefix}-message-id`]: expect.any(String),
        [`${prefix}-signature`]: expect.any(String),
      });
    }
    expect(seen["upstash-mine"]).toBeUndefined();
  });

  test("is under the other brand alone when it was started so, and says nothing twice", async () => {
    const headers = [["Upstash-Workflow-Sdk-Version", "1"]] as const;
    const seen = await headersOf({ brand: "upstash", headers, run: part });
    expect(Object.keys(seen).filter((name) => name.startsWith("svc-"))).toEqual([]);
    const both = [["Svc-Workflow-Sdk-Version", "1"], ...headers] as const;
    expect((await headersOf({ brand: "svc", headers: both, run: part }))["upstash-workflow-sdk-version"]).toBe("1");
  });

  test("is no call to a third party, which learns nothing of the run", async () => {
    const seen = await headersOf({ brand: "svc", run: { ...part, kind: "call" } });
    expect(Object.keys(seen).filter((name) => /workflow|^upstash-/.test(name))).toEqual([]);
  });
});

describe("the answer of a third party", () => {
  const answering = (size: number): Promise<number> => httpDestination((_incoming, response) => response.end("x".repeat(size)));

  test("is whole up to the size of a message, and no answer beyond", async () => {
    const run = { ...part, kind: "call" as const };
    const whole = await call(`http://127.0.0.1:${await answering(8 * 1024 * 1024)}/`, { run });
    expect([whole.status, whole.body.byteLength]).toEqual([200, 8 * 1024 * 1024]);
    const cut = await call(`http://127.0.0.1:${await answering(8 * 1024 * 1024 + 1)}/`, { run });
    expect(cut).toMatchObject({ status: null, error: "the answer is larger than 8 MiB" });
  });
});
