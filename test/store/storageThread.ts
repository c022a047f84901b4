import { getEnvironmentData, threadId } from "node:worker_threads";
import { idMaker } from "../../src/core/ids.ts";
import { serveStorage } from "../../src/store/storageThread.ts";
import { randomFrom } from "./chance.ts";

// A storage thread whose clock the test moves: see `TestClock`.
const time = new Float64Array(getEnvironmentData("clock") as SharedArrayBuffer);
const random = randomFrom(threadId);
serveStorage({ now: () => time[0] ?? 0, random, newId: idMaker(random) });
