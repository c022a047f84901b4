import { join } from "node:path";
import { setEnvironmentData } from "node:worker_threads";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { threadStore } from "../../src/store/thread.ts";
import { describeStore } from "./contract.ts";
import { freshFolder, sourceOf } from "./world.ts";

describeStore("SQLite in memory", (clock, node) => sqliteStore(":memory:", sourceOf(clock, node)));

describeStore("SQLite on disk", (clock, node) => sqliteStore(join(freshFolder(), "store.db"), sourceOf(clock, node)));

describeStore("SQLite on its threads", (clock, node) => {
  setEnvironmentData("clock", clock.shared);
  return threadStore({ path: join(freshFolder(), "store.db"), node, entry: new URL("./storageThread.ts", import.meta.url) });
});
