import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** The password of the operator of a recorded server. */
export const operatorPassword = "password-of-the-recording";

/** A server that is recorded. */
export type Server = { url: string; stop(): Promise<void> };

/**
 * Starts the server of a checkout as its own process, with SQLite in a temporary folder. Deliveries to
 * loopback are allowed. `flags` are further settings.
 */
export async function startServer(checkout: string, flags: readonly string[] = []): Promise<Server> {
  const data = mkdtempSync(join(tmpdir(), "waypost-recording-"));
  // Older versions have another main file.
  const files = ["src/server/cli/main.ts", "src/cli/main.ts"].map((file) => join(checkout, file));
  const main = files.find((file) => existsSync(file)) ?? "";
  const settings = ["--egress-allow", "127.0.0.0/8", "--refused-per-second", "100000", ...flags];
  const args = ["start", "--port", "0", "--data", data, ...settings];
  const env = { PATH: process.env["PATH"], WAYPOST_OPERATOR_PASSWORD: operatorPassword };
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", main, ...args], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const end = once(child, "close");
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const ready = new Promise<string>((resolve) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [, url] = /(?:running at|listening on) (http:[^\s"]+)/.exec(line) ?? [];
      if (url) resolve(url);
    });
  });
  const failed = end.then(() => {
    throw new Error(`the server of ${checkout} ended before it served: ${said}`);
  });
  const url = await Promise.race([ready, failed]);
  failed.catch(() => undefined);
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await end;
    rmSync(data, { recursive: true, force: true });
  };
  return { url, stop };
}
