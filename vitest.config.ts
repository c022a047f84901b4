import { env } from "node:process";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// Hundreds of servers and commands are started from the same sources: each compiles only what no other has.
env["NODE_COMPILE_CACHE"] ??= fileURLToPath(new URL("node_modules/.cache/compile", import.meta.url));

export default defineConfig({
  test: {
    environment: "node",
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/postgres.ts"],
    pool: "forks",
    // Two at a time: each file may drive a server and a database, and small machines have two cores.
    maxWorkers: 2,
    // A command of its own takes a second or two where others are at work as well, and some tests need a dozen.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    teardownTimeout: 10_000,
  },
});
