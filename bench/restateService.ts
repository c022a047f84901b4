/** The workflow of the bench as a service of Restate, in its own process, with Restate's SDK. */
import { createServer, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { AddressInfo } from "node:net";
import { request } from "undici";
import { serveDriver } from "./benchProcess.ts";
import { loadPackage } from "./rivalPackages.ts";
import { pause } from "./server.ts";
import { stepAnswers, takeSteps } from "./stepTurn.ts";

/** The requests that the service handles. */
export type RestateAnswers = typeof answers;

/** The part of `@restatedev/restate-sdk` that this file uses. */
type Context = { run(name: string, work: () => Promise<string>): PromiseLike<string> };
type Handler = (context: Context, input: { steps: number }) => Promise<string>;
type Sdk = {
  service(definition: { name: string; handlers: Record<string, Handler> }): object;
  createEndpointHandler(options: {
    services: object[];
    logger: () => void;
  }): (request: Http2ServerRequest, response: Http2ServerResponse) => void;
};

const startLimit = 60_000;

const answers = {
  ...stepAnswers,
  /** Listens, and registers the service when the server is ready. */
  listen: async ({ folder, adminPort }: { folder: string; adminPort: number }): Promise<void> => {
    const { service, createEndpointHandler } = loadPackage(folder, "@restatedev/restate-sdk") as Sdk;
    const run: Handler = async (context, { steps }) => {
      await takeSteps(steps, (name, work) => context.run(name, work));
      return "done";
    };
    const bench = service({ name: "bench", handlers: { run } });
    // By default, the SDK prints two lines for each run.
    const server = createServer(createEndpointHandler({ services: [bench], logger: () => undefined }));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    const { port } = server.address() as AddressInfo;
    await register(`http://127.0.0.1:${port}`, adminPort);
  },
};

async function register(uri: string, adminPort: number): Promise<void> {
  const deadline = performance.now() + startLimit;
  for (;;) {
    const problem = await tryRegister(uri, adminPort);
    if (problem === null) return;
    if (performance.now() > deadline) throw new Error(`The service could not be registered: ${problem}`);
    await pause(200);
  }
}

/** Returns why the service could not be registered, or null. */
async function tryRegister(uri: string, adminPort: number): Promise<string | null> {
  try {
    const response = await request(`http://127.0.0.1:${adminPort}/deployments`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ uri }),
    });
    const text = await response.body.text();
    return response.statusCode < 300 ? null : text;
  } catch (error) {
    return String(error);
  }
}

serveDriver(answers);
