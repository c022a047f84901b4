// npm run trial:job: a receiver works for two hours on one delivery, behind an nginx that cuts after 30 s. It
// extends its attempt every 30 s, and then reports the outcome.
import { spawnSync } from "node:child_process";
import { env, exit } from "node:process";

const args = [
  "vitest",
  "run",
  "--project",
  "all",
  "test/server/network/pullBehindProxy.test.ts",
  "-t",
  "a job",
];
const trial = { TEST_PROXY_SECONDS: "30", TEST_JOB_SECONDS: "7200", ...env };
const { status } = spawnSync("npx", args, { env: trial, stdio: "inherit" });
exit(status ?? 1);
