import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { findFreePort } from "../../freePort.ts";
import { runWaypost, startWaypost, temporaryFolder } from "../waypost.ts";

test("the first response of a held server after a restart has held", async () => {
  const folder = temporaryFolder();
  const data = join(folder, "data");
  const held = await startWaypost(["dev", "--hold", "--port", "0", "--data", data]);
  held.kill("SIGKILL");
  await held.ended;
  const port = await findFreePort();
  const late = join(folder, "late");
  const again = runWaypost(["dev", "--port", String(port), "--data", data], {
    NODE_OPTIONS: `--import ${new URL("./lateSocket.ts", import.meta.url).href}`,
    LATE_SOCKET: late,
  });
  const ask = async (path: string): Promise<unknown> =>
    (await fetch(`http://127.0.0.1:${port}/v2/${path}`)).json();
  // The server has opened its port, and has not ended its start.
  const first = await vi.waitFor(() => ask("health"), { timeout: 120_000, interval: 5 });
  expect(first).toMatchObject({ status: "ok", held: true });
  expect(await ask("health/ready")).toMatchObject({ held: true });
  expect(again.out()).not.toContain("running at");
  writeFileSync(late, "");
  await again.ready;
  expect(await ask("health")).toMatchObject({ held: true });
});
