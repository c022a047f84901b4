/**
 * The workflow of the bench with DBOS, in its own process. DBOS is a library: the process that receives the
 * requests also executes the steps and stores their results in PostgreSQL.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { serveDriver } from "./benchProcess.ts";
import { loadPackage } from "./rivalPackages.ts";
import { stepAnswers, takeSteps } from "./stepTurn.ts";

/** The requests that the process handles. */
export type DbosAnswers = typeof answers;

/** The part of `@dbos-inc/dbos-sdk` that this file uses. */
type Sdk = {
  DBOS: {
    setConfig(config: {
      name: string;
      systemDatabaseUrl: string;
      systemDatabasePoolSize: number;
      logLevel: string;
    }): void;
    registerWorkflow<A extends unknown[]>(
      run: (...args: A) => Promise<string>,
      options: { name: string },
    ): (...args: A) => Promise<string>;
    runStep<R>(work: () => Promise<R>, options: { name: string }): Promise<R>;
    launch(): Promise<void>;
  };
};

/** Connections to the database, as for the job queues in `rival.ts`. */
const pool = 20;

const answers = {
  ...stepAnswers,
  listen: async ({ folder, database }: { folder: string; database: string }): Promise<{ port: number }> => {
    const { DBOS } = loadPackage(folder, "@dbos-inc/dbos-sdk") as Sdk;
    DBOS.setConfig({
      name: "bench",
      systemDatabaseUrl: database,
      systemDatabasePoolSize: pool,
      logLevel: "error",
    });
    const run = DBOS.registerWorkflow(
      async (steps: number) => {
        await takeSteps(steps, (name, work) => DBOS.runStep(work, { name }));
        return "done";
      },
      { name: "run" },
    );
    await DBOS.launch();
    const server = createServer((request, response) => take(run, request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    return { port: (server.address() as AddressInfo).port };
  },
};

function take(
  run: (steps: number) => Promise<string>,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const { steps } = JSON.parse(Buffer.concat(chunks).toString()) as { steps: number };
    run(steps).then(
      (result) => void response.end(JSON.stringify(result)),
      (error: unknown) => void response.writeHead(500).end(String(error)),
    );
  });
}

serveDriver(answers);
