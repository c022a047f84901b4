import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

// The client has an adapter for each framework. Here, each is called as its framework calls it.

/** A route with the context of a workflow, and what the adapter passes behind it. */
export type Route = (context: Context, ...more: unknown[]) => Promise<unknown>;

type Context = { run<T>(name: string, work: () => T | Promise<T>): Promise<T> };
type Given = { load<T>(module: string): T; route: Route; options: object; url: string };
type Adapter<Served> = { serve(route: Route, options: object): Served };
type Fetch = (request: Request) => Promise<Response>;
type Post<Argument> = { POST(argument: Argument): Promise<Response> };

/** A framework, and how it serves a route with the adapter of the client. */
export type Framework = {
  name: string;
  /** The module of the adapter. */
  adapter: string;
  host(given: Given): RequestListener;
};

type Pages = {
  servePagesRouter(
    route: Route,
    options: object,
  ): { handler(request: IncomingMessage & { body: unknown }, response: ServerResponse): Promise<void> };
};
type Express = {
  (): RequestListener & { use(...handlers: unknown[]): void };
  json(): unknown;
};
type H3 = {
  createApp(): { use(path: string, handler: unknown): void };
  toNodeListener(app: object): RequestListener;
};
type Hono = { Hono: new () => { fetch: Fetch; post(path: string, handler: unknown): void } };

/** The frameworks. Express, h3 and Hono are installed; the other adapters need nothing of theirs. */
export const frameworks: readonly Framework[] = [
  {
    name: "Next.js, app router",
    adapter: "nextjs",
    host: ({ load, route, options }) => {
      const { POST } = load<Adapter<Post<Request>>>("@upstash/workflow/nextjs").serve(route, options);
      return toListener(POST);
    },
  },
  {
    name: "Next.js, pages router",
    adapter: "nextjs",
    host: ({ load, route, options, url }) => {
      const { servePagesRouter } = load<Pages>("@upstash/workflow/nextjs");
      const { handler } = servePagesRouter(route, { ...options, url });
      return (incoming, outgoing) => void callPage(handler, incoming, outgoing);
    },
  },
  {
    name: "Hono",
    adapter: "hono",
    host: ({ load, route, options }) => {
      const app = new (load<Hono>("hono").Hono)();
      app.post("/work", load<Adapter<unknown>>("@upstash/workflow/hono").serve(route, options));
      const { getRequestListener } = load<{ getRequestListener(fetch: Fetch): RequestListener }>(
        "@hono/node-server",
      );
      return getRequestListener(app.fetch);
    },
  },
  {
    name: "Express",
    adapter: "express",
    host: ({ load, route, options }) => {
      const express = load<Express>("express");
      const app = express();
      app.use(express.json());
      app.use("/work", load<Adapter<unknown>>("@upstash/workflow/express").serve(route, options));
      return app;
    },
  },
  {
    name: "h3",
    adapter: "h3",
    host: ({ load, route, options, url }) => {
      const { createApp, toNodeListener } = load<H3>("h3");
      const { serve } = load<Adapter<{ handler: unknown }>>("@upstash/workflow/h3");
      const app = createApp();
      app.use("/work", serve(route, { ...options, url }).handler);
      return toNodeListener(app);
    },
  },
  {
    name: "Cloudflare Workers",
    adapter: "cloudflare",
    host: ({ load, route, options }) => {
      type Worker = { fetch(request: Request, env: object): Promise<Response> };
      const worker = load<Adapter<Worker>>("@upstash/workflow/cloudflare").serve(route, options);
      return toListener((request) => worker.fetch(request, {}));
    },
  },
  ...(
    [
      ["SvelteKit", "svelte"],
      ["Astro", "astro"],
      ["SolidStart", "solidjs"],
      ["TanStack Start", "tanstack"],
    ] as const
  ).map(([name, adapter]) => ({ name, adapter, host: (given: Given) => hostEvents(given, adapter) })),
  {
    name: "React Router",
    adapter: "react-router",
    host: ({ load, route, options }) => {
      type Action = (event: { request: Request }) => Promise<Response>;
      const action = load<Adapter<Action>>("@upstash/workflow/react-router").serve(route, options);
      return toListener((request) => action({ request }));
    },
  },
  {
    name: "plain Node",
    adapter: "index",
    host: ({ load, route, options }) =>
      toListener(load<Adapter<{ handler: Fetch }>>("@upstash/workflow").serve(route, options).handler),
  },
];

/** These frameworks call `POST` with an event that has the request. */
function hostEvents({ load, route, options }: Given, adapter: string): RequestListener {
  const { serve } = load<Adapter<Post<{ request: Request }>>>(`@upstash/workflow/${adapter}`);
  const { POST } = serve(route, options);
  return toListener((request) => POST({ request }));
}

/** Serves a function of a web request. */
const toListener =
  (handler: Fetch): RequestListener =>
  async (incoming, outgoing) => {
    const { method = "", url = "", headersDistinct, headers } = incoming;
    const response = await handler(
      new Request(new URL(url, `http://${headers.host}`), {
        method,
        headers: Object.entries(headersDistinct).flatMap(([name, values]) =>
          (values ?? []).map((value): [string, string] => [name, value]),
        ),
        body: await readBody(incoming),
      }),
    );
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.end(Buffer.from(await response.arrayBuffer()));
  };

/** Calls an API route of the pages router, with what Next.js adds to the request and the response. */
async function callPage(
  handler: ReturnType<Pages["servePagesRouter"]>["handler"],
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const text = (await readBody(incoming)).toString();
  const isJson = incoming.headers["content-type"]?.startsWith("application/json") === true;
  const response = Object.assign(outgoing, {
    status: (status: number) => Object.assign(outgoing, { statusCode: status }),
    json: (body: unknown) => void outgoing.end(JSON.stringify(body)),
  });
  await handler(Object.assign(incoming, { body: isJson && text ? JSON.parse(text) : text }), response);
}

async function readBody(incoming: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** Starts a server on loopback. `answered` has the status of each request to it, when it is answered. */
export async function startHost(host: (url: string) => RequestListener) {
  const answered: number[] = [];
  let came = 0;
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/work`;
  const listener = host(url);
  server.on("request", (incoming, outgoing) => {
    came++;
    outgoing.on("finish", () => answered.push(outgoing.statusCode));
    listener(incoming, outgoing);
  });
  return {
    url,
    answered,
    isIdle: () => answered.length === came,
    close: (): void => {
      server.closeAllConnections();
      server.close();
    },
  };
}
