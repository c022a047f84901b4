// npm run clients:frameworks: runs steps in one call in the development server of each framework. It needs
// the npm registry and about 1 GB, or what an earlier run has installed.
import { spawnSync } from "node:child_process";
import { env, exit } from "node:process";

const args = ["vitest", "run", "--project", "all", "test/clients/frameworks/apps.test.ts"];
const { status } = spawnSync("npx", args, { env: { ...env, TEST_FRAMEWORKS: "1" }, stdio: "inherit" });
exit(status ?? 1);
