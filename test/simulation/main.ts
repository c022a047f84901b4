import { parseArgs } from "node:util";
import { manyJobs, simulate } from "./simulation.ts";
import { freshDatabase, startPostgres } from "../postgres.ts";
import { postgresStorage } from "./storage/postgresStorage.ts";
import type { Storage } from "./storage/storage.ts";
import { memoryStorage, sqliteStorage } from "./storage/storage.ts";

const usage = `Runs simulations and prints their results. Exits with code 1 if an invariant is broken.

npm run simulate -- [--seed 7]       first seed [random]
                    [--runs 100]     number of consecutive seeds [1]
                    [--actions 300]  client requests per run [150]
                    [--store memory|sqlite|postgres]  [memory]
                    [--meet]         batches of several nodes overlap
                    [--jobs]         clients create many jobs
                    [--trace]        print the whole trace
`;

function given() {
  const { values } = parseArgs({
    options: {
      seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
      actions: { type: "string", default: "150" },
      runs: { type: "string", default: "1" },
      store: { type: "string", default: "memory" },
      meet: { type: "boolean", default: false },
      jobs: { type: "boolean", default: false },
      trace: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const first = numberOf("seed", values.seed);
  const actions = numberOf("actions", values.actions);
  const runs = numberOf("runs", values.runs);
  return { ...values, first, actions, runs };
}

function numberOf(name: string, text: string): number {
  if (!/^\d{1,12}$/.test(text)) throw new Error(`--${name}: "${text}" is not a whole number.`);
  return Number(text);
}

/** Returns the options, or null after printing what is wrong with them. */
function readOptions(): ReturnType<typeof given> | null {
  try {
    return given();
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
    process.exitCode = 2;
    return null;
  }
}

type Stores = Record<string, () => Promise<Storage>>;

async function run(
  { first, actions, runs, meet, jobs, trace: showsAll }: ReturnType<typeof given>,
  open: () => Promise<Storage>,
): Promise<void> {
  for (let seed = first; seed < first + runs; seed++) {
    const { failure, trace, digest, messages, steps } = await simulate({
      seed,
      actions,
      meet,
      ...(jobs && manyJobs),
      storage: await open(),
    });
    if (showsAll) console.log(trace.join("\n"));
    console.log(
      `seed ${seed}: ${messages} messages, ${steps} steps, digest ${digest}: ${failure ?? "no violations"}`,
    );
    if (failure === null) continue;
    process.exitCode = 1;
    const id = /msg_\w+/.exec(failure)?.[0];
    const about = id === undefined ? [] : trace.filter((line) => line.includes(id));
    if (!showsAll) console.log([...about, "…", ...trace.slice(-15)].join("\n"));
  }
}

const options = readOptions();
if (options?.help) console.log(usage);
else if (options) {
  const server = options.store === "postgres" ? await startPostgres() : null;
  const stores: Stores = {
    memory: async () => memoryStorage(),
    sqlite: sqliteStorage,
    postgres: async () => postgresStorage(await freshDatabase(server?.url)),
  };
  const open = Object.hasOwn(stores, options.store) ? stores[options.store] : undefined;
  if (open) await run(options, open).finally(() => server?.stop());
  else {
    console.error(
      `--store: "${options.store}" is unknown; use ${Object.keys(stores).join(", ")}.\n\n${usage}`,
    );
    process.exitCode = 2;
  }
}
