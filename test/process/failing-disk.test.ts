import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { request } from "undici";
import { expect, test } from "vitest";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

const timeout = 60_000;

test(
  "a server whose disk fails acknowledges nothing any more and ends; started again it goes on with what it had acknowledged",
  {
    timeout,
  },
  async () => {
    const [data, failing] = [temporaryFolder(), join(temporaryFolder(), "failing")];
    const destination = await startDestination();
    const args = ["dev", "--port", "0", "--data", data];
    const preload = new URL("./failingDisk.ts", import.meta.url).href;
    const server = await startWaypost(args, { NODE_OPTIONS: `--import=${preload}`, FAILING_DISK: failing });
    const publish = (url: string, name: string) =>
      request(`${url}/v2/publish/${destination.url}/${name}`, {
        method: "POST",
        headers: { authorization: `Bearer ${developmentToken}`, "svc-delay": "2s" },
        body: name,
      });
    expect((await publish(server.url, "kept")).statusCode).toBe(200);
    writeFileSync(failing, "");
    // It may end before the answer has gone out.
    const [doubtful] = await Promise.allSettled([publish(server.url, "doubtful")]);
    expect(doubtful.status === "rejected" ? 503 : doubtful.value.statusCode).toBe(503);
    const { code, err } = await server.ended;
    expect(code).toBe(1);
    expect(err).toContain("the disk failed to keep what was written");
    expect(err).toContain("EIO: i/o error, fdatasync");
    rmSync(failing);
    const next = await startWaypost(args);
    await destination.until((arrivals) => arrivals.some(({ path }) => path === "/kept"));
    expect((await publish(next.url, "later")).statusCode).toBe(200);
  },
);
