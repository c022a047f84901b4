import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { builtServer } from "../server/builtProgram.ts";
import { developmentToken } from "../server/waypost.ts";
import type { Destinations } from "./destinations.ts";
import { startDestinations } from "./destinations.ts";
import { seed } from "./seed.ts";

/** The password of the operator of a console server. */
export const operatorPassword = "operator-of-the-console";

/** A real server with the built console. `signIn` is an address that signs in, once. */
export type ConsoleServer = {
  url: string;
  token: string;
  signIn: string;
  destinations: Destinations;
  close(): Promise<void>;
};

/** Starts a real server in its own process, and fills it with every state unless `isEmpty`. */
export async function startConsoleServer({
  isEmpty = false,
  args = [] as string[],
} = {}): Promise<ConsoleServer> {
  const data = mkdtempSync(join(tmpdir(), "waypost-console-"));
  const env = {
    ...process.env,
    WAYPOST_OPERATOR_PASSWORD: operatorPassword,
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
  };
  const child = spawn(
    process.execPath,
    [
      "--disable-warning=ExperimentalWarning",
      builtServer(),
      "dev",
      "--port",
      "0",
      "--data",
      data,
      "--log-level",
      "error",
      ...args,
    ],
    { env, stdio: ["ignore", "pipe", "inherit"] },
  );
  let signIn = "";
  const url = await new Promise<string>((resolve, reject) => {
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      signIn = /^console at (\S+)/.exec(line)?.[1] ?? signIn;
      const [, running] = /^running at (\S+)/.exec(line) ?? [];
      if (running !== undefined) resolve(running);
    });
  });
  const server = { url, token: developmentToken };
  const destinations = await startDestinations(server);
  if (!isEmpty) await seed(server, destinations);
  return {
    ...server,
    signIn,
    destinations,
    close: async () => {
      const ended = new Promise((resolve) => child.on("exit", resolve));
      child.kill("SIGKILL");
      await ended;
      destinations.close();
      rmSync(data, { recursive: true, force: true });
    },
  };
}
