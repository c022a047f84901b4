import { env } from "node:process";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { againOnFastPath, againOnFramework } from "./test/api/twice.ts";

// Hundreds of servers and commands are started from the same sources: each compiles only what no other has.
env["NODE_COMPILE_CACHE"] ??= fileURLToPath(new URL("node_modules/.cache/compile", import.meta.url));

const common = {
  environment: "node",
  pool: "forks",
  // A command of its own takes a second or two where others are at work as well, and some tests need a dozen.
  testTimeout: 180_000,
  hookTimeout: 180_000,
} as const;

export default defineConfig({
  test: {
    // Two at a time: each file may drive a server and a database, and small machines have two cores.
    maxWorkers: 2,
    teardownTimeout: 10_000,
    projects: [
      { test: { ...common, name: "all", include: ["test/**/*.test.ts"], globalSetup: ["test/postgres.ts"] } },
      { test: { ...common, name: "again on the fast path", include: againOnFastPath, env: { FAST_PATH: "on" } } },
      { test: { ...common, name: "again on the framework", include: againOnFramework, env: { FAST_PATH: "off" } } },
    ],
  },
});
