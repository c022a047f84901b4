/** The workflow of the bench as a service of Restate, in its own process, with Restate's SDK. */
import { createServer, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { AddressInfo } from "node:net";
import { serveDriver } from "./benchProcess.ts";
import { registerRestate } from "./restateRegistration.ts";
import { loadPackage } from "./rivalPackages.ts";
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
    await registerRestate(`http://127.0.0.1:${port}`, adminPort);
  },
};

serveDriver(answers);
