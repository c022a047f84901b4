/**
 * The process of an application that works on the jobs in its own database, with pg-boss or graphile-worker.
 * It starts and stops to work when it is asked to.
 */
import { makeWorkerUtils } from "graphile-worker";
import { serveDriver } from "./benchProcess.ts";
import {
  bossQueue,
  createDeliver,
  rivalPool,
  runGraphile,
  silentLogger,
  startBoss,
  workOnBoss,
} from "./rivalWorkers.ts";

/** The requests that the process handles. */
export type ConsumerAnswers = typeof answers;
/** The job queues whose jobs are stored in a transaction of the application. */
export type ConsumerName = "pg-boss" | "graphile-worker";

/** Starts and stops the work. */
type Work = { start(): Promise<void>; stop(): Promise<void> };

const open: Record<ConsumerName, (database: string, connections: number) => Promise<Work>> = {
  "pg-boss": async (database, connections) => {
    const boss = await startBoss(database);
    const deliver = createDeliver(connections);
    return { start: () => workOnBoss(boss, deliver), stop: () => boss.offWork(bossQueue) };
  },
  "graphile-worker": async (database, connections) => {
    const utils = await makeWorkerUtils({
      connectionString: database,
      maxPoolSize: rivalPool,
      logger: silentLogger,
    });
    await utils.migrate();
    await utils.release();
    const deliver = createDeliver(connections);
    let stop = async (): Promise<void> => undefined;
    return {
      start: async () => {
        const runner = await runGraphile(database, { connections, deliver });
        stop = () => runner.stop();
      },
      stop: () => stop(),
    };
  },
};

let work: Work | null = null;

const answers = {
  open: async (of: { name: ConsumerName; database: string; connections: number }): Promise<void> => {
    work = await open[of.name](of.database, of.connections);
  },
  start: async (): Promise<void> => work?.start(),
  stop: async (): Promise<void> => work?.stop(),
};

serveDriver(answers);
