import { env } from "node:process";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { againOnFastPath, againOnFramework } from "./test/api/twice.ts";

// Hundreds of servers and commands are started from the same sources: each compiles only what no other has.
env["NODE_COMPILE_CACHE"] ??= fileURLToPath(new URL("node_modules/.cache/compile", import.meta.url));

const common = {
  environment: "node",
  pool: "forks",
  // The files of a worker share its modules: loading the sources took most of the time of most files. The long
  // tests do not, so that nothing that one file leaves behind fails another. See docs/decisions/0099.
  isolate: false,
  tags: [
    { name: "long", description: "not part of `npm test`, but of `npm run test:long`; see CONTRIBUTING.md" },
  ],
  // Only what hangs should meet these limits. Some tests run a dozen commands, each of which takes a second or
  // two on an idle machine, and ten or more on a slow one that is busy.
  testTimeout: 600_000,
  hookTimeout: 600_000,
  // `expect.poll` waits for what must happen. On a busy machine it may happen late.
  expect: { poll: { timeout: 120_000 } },
} as const;

export default defineConfig({
  test: {
    // Three workers, because small machines have two cores, and many tests wait for processes that they started.
    maxWorkers: 3,
    teardownTimeout: 60_000,
    projects: [
      {
        test: {
          ...common,
          name: "all",
          include: ["test/**/*.test.ts"],
          globalSetup: ["test/builtConsole.ts", "test/postgres.ts"],
        },
      },
      {
        test: {
          ...common,
          name: "again on the fast path",
          include: againOnFastPath,
          env: { FAST_PATH: "on" },
        },
      },
      {
        test: {
          ...common,
          name: "again on the framework",
          include: againOnFramework,
          env: { FAST_PATH: "off" },
        },
      },
    ],
    coverage: {
      include: ["src/**/*.ts"],
      reportOnFailure: true,
      reporter: ["text-summary", "json"],
      reportsDirectory: "node_modules/.cache/coverage",
    },
  },
});
