// npm run trial:pullers: opens 1,000 pulls that wait, for a minute, and prints their share of a core.
import { spawnSync } from "node:child_process";
import { env, exit } from "node:process";

const args = ["vitest", "run", "--project", "all", "test/server/idle/pullers.test.ts"];
const trial = { TEST_PULLERS: "1000", TEST_PULLERS_SECONDS: "60", ...env };
const { status } = spawnSync("npx", args, { env: trial, stdio: "inherit" });
exit(status ?? 1);
