// @module-tag long
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { request } from "undici";
import { expect, test } from "vitest";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

/**
 * After a slow sync the server syncs elsewhere at most this often before it tries here again, and vice versa.
 */
const mostTries = 10_000;

// The server uses the failing way before the attempts run out, regardless of its first choice.
test.each(["here", "elsewhere"])(
  "a server whose disk fails %s stops acknowledging and exits, " +
    "and a restart continues with all it acknowledged",
  async (way) => {
    const data = temporaryFolder();
    const failing = join(temporaryFolder(), "failing");
    const destination = await startDestination();
    const args = ["dev", "--port", "0", "--data", data];
    const preload = new URL("./failingDisk.ts", import.meta.url).href;
    const server = await startWaypost(args, {
      NODE_OPTIONS: `--import=${preload}`,
      FAILING_DISK: failing,
      FAILING_WAY: way,
    });
    const publish = async (url: string, name: string): Promise<number> => {
      const headers = { authorization: `Bearer ${developmentToken}`, "svc-delay": "2s" };
      const answer = await request(`${url}/v2/publish/${destination.url}/${name}`, {
        method: "POST",
        headers,
        body: name,
      });
      await answer.body.dump();
      return answer.statusCode;
    };
    expect(await publish(server.url, "kept")).toBe(200);
    writeFileSync(failing, "");
    const acknowledged = ["kept"];
    let last: number | null = 200;
    for (let count = 0; last === 200 && count < mostTries; count++) {
      // The server may exit before the response is sent.
      last = await publish(server.url, `doubtful-${count}`).catch(() => null);
      if (last === 200) acknowledged.push(`doubtful-${count}`);
    }
    expect(last ?? 503).toBe(503);
    const { code, err } = await server.ended;
    expect(code).toBe(1);
    expect(err).toContain("the disk failed to store data");
    expect(err).toContain(`EIO: i/o error, fdatasync, ${way}`);
    rmSync(failing);
    const next = await startWaypost(args);
    await destination.until((arrivals) =>
      acknowledged.every((name) => arrivals.some(({ path }) => path === `/${name}`)),
    );
    expect(await publish(next.url, "later")).toBe(200);
  },
);
