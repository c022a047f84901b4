import { env } from "node:process";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// Hundreds of servers and commands are started from the same sources: each compiles only what no other has.
env["NODE_COMPILE_CACHE"] ??= fileURLToPath(new URL("node_modules/.cache/compile", import.meta.url));

export default defineConfig({
  test: {
    environment: "node",
    include: ["test/**/*.test.ts"],
    tags: [{ name: "long", description: "not part of `npm test`, but of `npm run test:long`; see CONTRIBUTING.md" }],
    globalSetup: ["test/postgres.ts"],
    pool: "forks",
    // Three at a time: small machines have two cores, and many tests wait for what they have started.
    maxWorkers: 3,
    // A command of its own takes a second or two where others are at work as well, and some tests need a dozen.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    teardownTimeout: 10_000,
    coverage: {
      include: ["src/**/*.ts"],
      reportOnFailure: true,
      reporter: ["text-summary", "json"],
      reportsDirectory: "node_modules/.cache/coverage",
    },
  },
});
