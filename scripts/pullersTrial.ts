// npm run trial:pullers: opens 1,000 pulls that wait, for a minute, and prints their share of a core. They
// wait on one server for one origin, and then on a node beside a busy one for 1,000 origins.
import { spawnSync } from "node:child_process";
import { env, exit } from "node:process";

const args = ["vitest", "run", "--project", "all", "test/server/idle/pullers"];
const trial = { TEST_PULLERS: "1000", TEST_PULLERS_SECONDS: "60", ...env };
const { status } = spawnSync("npx", args, { env: trial, stdio: "inherit" });
exit(status ?? 1);
