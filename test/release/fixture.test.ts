import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../process/waypost.ts";

const script = join(import.meta.dirname, "../../scripts/release/fixture.ts");

test("a fixture can be restored, and has what it names", { tags: "long", timeout: 120_000 }, async () => {
  const folder = join(temporaryFolder(), "fixture");
  const made = spawnSync(process.execPath, ["--disable-warning=ExperimentalWarning", script, folder]);
  expect(made.status, made.stderr.toString()).toBe(0);
  const expected = JSON.parse(readFileSync(join(folder, "expected.json"), "utf8")) as Record<string, string>;
  const data = join(temporaryFolder(), "data");
  const restored = await runWaypost(["restore", join(folder, "waypost.db"), "--data", data]).ended;
  expect(restored).toMatchObject({ code: 0, err: "" });
  const { url } = await startWaypost(["dev", "--hold", "--port", "0", "--data", data]);
  const read = async (path: string): Promise<unknown> => {
    const response = await fetch(`${url}${path}`, {
      headers: { authorization: `Bearer ${developmentToken}` },
    });
    expect(response.status, path).toBe(200);
    return response.json();
  };
  for (const name of ["delayed", "queued", "retrying", "limited", "deduplicated"])
    expect(await read(`/v2/messages/${expected[name]}`), name).toMatchObject({ messageId: expected[name] });
  expect(await read(`/v2/schedules/${expected["schedule"]}`)).toMatchObject({ cron: "0 3 * * *" });
  expect(await read("/v2/dlq")).toMatchObject({ messages: [{ messageId: expected["failed"] }] });
  expect(await read("/v2/queues/orders")).toMatchObject({ parallelism: 2 });
  expect(await read(`/v2/workflows/runs/${expected["run"]}`)).toBeDefined();
});
