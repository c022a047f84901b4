import { parseArgs } from "node:util";
import { simulate } from "./simulation.ts";
import { freshDatabase, startPostgres } from "../postgres.ts";
import { postgresStorage } from "./postgresStorage.ts";
import type { Storage } from "./storage.ts";
import { memoryStorage, sqliteStorage } from "./storage.ts";

// Runs one simulation and tells what came of it: npm run simulate -- --seed 7 [--actions 300] [--runs 100] [--store sqlite|postgres] [--meet] [--trace]
const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    actions: { type: "string", default: "150" },
    runs: { type: "string", default: "1" },
    store: { type: "string", default: "memory" },
    meet: { type: "boolean", default: false },
    trace: { type: "boolean", default: false },
  },
});

const server = values.store === "postgres" ? await startPostgres() : null;
const stores: Record<string, () => Promise<Storage>> = {
  memory: async () => memoryStorage(),
  sqlite: sqliteStorage,
  postgres: async () => postgresStorage(await freshDatabase(server?.url)),
};
const open = stores[values.store];
if (!open) throw new Error(`--store is one of ${Object.keys(stores).join(", ")}`);

const first = values.seed === undefined ? Math.floor(Math.random() * 1e9) : Number(values.seed);
for (let seed = first; seed < first + Number(values.runs); seed++) {
  const asked = { seed, actions: Number(values.actions), meet: values.meet };
  const { failure, trace, digest, messages, steps } = await simulate({ ...asked, storage: await open() });
  if (values.trace) console.log(trace.join("\n"));
  console.log(`seed ${seed}: ${messages} messages, ${steps} steps, digest ${digest}: ${failure ?? "all promises kept"}`);
  if (failure === null) continue;
  process.exitCode = 1;
  const id = /msg_\w+/.exec(failure)?.[0];
  const about = id === undefined ? [] : trace.filter((line) => line.includes(id));
  if (!values.trace) console.log([...about, "…", ...trace.slice(-15)].join("\n"));
}
await server?.stop();
