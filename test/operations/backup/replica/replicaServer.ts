import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect } from "vitest";
import { developmentToken, startWaypost } from "../../../server/waypost.ts";

/** The headers of a request with the token for development. */
export const headers = { authorization: `Bearer ${developmentToken}` };

type Health = { replica?: { lagSeconds: number; complete: boolean } };

/** A server that keeps a replica, and the process that writes it. */
export async function startServer(folder: string, replica = join(folder, "replica")) {
  const data = join(folder, "data");
  const server = await startWaypost(["dev", "--port", "0", "--data", data, "--replicate", replica]);
  const publish = async (body: string | Buffer): Promise<string> => {
    const url = `${server.url}/v2/publish/http://127.0.0.1:9/later`;
    const answer = await request(url, { method: "POST", headers: { ...headers, "svc-delay": "1h" }, body });
    expect(answer.statusCode).toBe(200);
    return ((await answer.body.json()) as { messageId: string }).messageId;
  };
  const health = async (): Promise<NonNullable<Health["replica"]>> => {
    const answer = await request(`${server.url}/v2/health`);
    return ((await answer.body.json()) as Health).replica ?? { lagSeconds: -1, complete: false };
  };
  const until = async (isSo: (state: { lagSeconds: number; complete: boolean }) => boolean) => {
    while (!isSo(await health())) await pause(50);
  };
  return { server, data, replica, publish, health, until };
}

/** Returns the process that writes to a folder, and its parent. Null: there is none. */
export function findWriter(folder: string): { pid: number; parent: number } | null {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const read = (file: string): string => {
      try {
        return readFileSync(`/proc/${pid}/${file}`, "utf8");
      } catch {
        return "";
      }
    };
    // A writer ends with the folder, the store, and the database.
    if (read("cmdline").split("\0").at(-4) !== folder) continue;
    const parent = Number(/PPid:\t(\d+)/.exec(read("status"))?.[1]);
    return { pid: Number(pid), parent };
  }
  return null;
}

/** Returns the process that writes to a folder, and its parent. Throws if there is none. */
export const mustFindWriter = (folder: string): { pid: number; parent: number } => {
  const writer = findWriter(folder);
  if (!writer) throw new Error("no process writes the replica");
  return writer;
};
