// npm run trial:outbox: kills the server and a database with an outbox 1,000 times, and then ends the
// database for ten minutes.
import { spawnSync } from "node:child_process";
import { env, exit } from "node:process";

const args = ["vitest", "run", "--project", "all", "test/operations/outbox/kills.test.ts"];
const trial = { TEST_OUTBOX_KILLS: "1000", TEST_OUTBOX_OUTAGE: "600" };
const { status } = spawnSync("npx", args, { env: { ...env, ...trial }, stdio: "inherit" });
exit(status ?? 1);
