// The smallest app of each framework that serves the same workflow at /work. See apps.test.ts.

/** An app of a framework. It is installed in its own folder, and started there. */
export type App = {
  name: string;
  packages: readonly string[];
  files: Readonly<Record<string, string>>;
  /** The arguments of Node.js that start the app. */
  start(port: number): readonly string[];
};

const client = "@upstash/workflow@1.3.3";
const react = ["react@19.3.1", "react-dom@19.3.1"];
const vite = "vite@8.4.0";

/** Returns a module that serves the workflow with an adapter. `folder` is that of `work.js`. */
const served = (adapter: string, folder: string, statement: string): string => `
import { serve } from "@upstash/workflow/${adapter}";
import { route } from "${folder}/work.js";
${statement}
`;

/**
 * The workflow of all apps. Its second step fails once. The result has what was executed, and where.
 */
export const workflow = `
import { runOn } from "waypost/workflow";

const executed = (globalThis.executed ??= []);
const begin = (name) => void executed.push(name);

export const route = runOn(async (context) => {
  await context.run("one", () => begin("one"));
  await context.run("two", () => {
    begin("two");
    if (executed.length === 2) throw new Error("not yet");
  });
  for (const name of ["three", "four"]) await context.run(name, () => begin(name));
  return context.run("five", () => [...executed, context.requestPayload.n]);
});
`;

const viteConfig = (imports: string, plugins: string): string => `
import { defineConfig } from "vite";
${imports}
export default defineConfig({ plugins: [${plugins}] });
`;

const viteDev = (port: number): string[] => [
  "node_modules/vite/bin/vite.js",
  ...["dev", "--host", "127.0.0.1", "--strictPort", "--port", String(port)],
];

/** The apps. */
export const apps: readonly App[] = [
  {
    name: "next",
    packages: ["next@16.4.6", ...react, client],
    files: {
      "app/work/route.js": served("nextjs", "../..", "export const { POST } = serve(route);"),
      "app/layout.js": "export default ({ children }) => <html><body>{children}</body></html>;",
      "pages/api/work.js": `
import { servePagesRouter } from "@upstash/workflow/nextjs";
import { route } from "../../work.js";
export default servePagesRouter(route).handler;
`,
    },
    start: (port) => ["node_modules/next/dist/bin/next", "dev", "-H", "127.0.0.1", "-p", String(port)],
  },
  {
    name: "svelte",
    packages: [
      ...["@sveltejs/kit@3.2.0", "@sveltejs/vite-plugin-svelte@7.3.1", "svelte@5.57.3", "typescript@6.0.3"],
      ...[vite, client],
    ],
    files: {
      "vite.config.js": viteConfig('import { sveltekit } from "@sveltejs/kit/vite";', "sveltekit()"),
      "src/app.html": "<html><head>%sveltekit.head%</head><body>%sveltekit.body%</body></html>",
      "src/routes/work/+server.js": served("svelte", "../../..", "export const { POST } = serve(route);"),
    },
    start: viteDev,
  },
  {
    name: "astro",
    packages: ["astro@7.3.5", "@astrojs/node@11.1.6", client],
    files: {
      "astro.config.mjs": `
import node from "@astrojs/node";
export default { output: "server", adapter: node({ mode: "standalone" }) };
`,
      "src/pages/work.js": served("astro", "../..", "export const { POST } = serve(route);"),
    },
    start: (port) => [
      "node_modules/astro/bin/astro.mjs",
      ...["dev", "--host", "127.0.0.1", "--port", String(port)],
    ],
  },
  {
    name: "solid",
    packages: [
      ...["@solidjs/start@2.0.5", "@solidjs/router@1.0.0", "solid-js@1.9.20"],
      ...["@solidjs/vite-plugin-nitro-2@0.3.2", vite, client],
    ],
    files: {
      "vite.config.js": viteConfig(
        `import { solidStart } from "@solidjs/start/config";
import { nitroV2Plugin } from "@solidjs/vite-plugin-nitro-2";`,
        "solidStart(), nitroV2Plugin()",
      ),
      "src/app.jsx": `
import { Router } from "@solidjs/router";
import { FileRoutes } from "@solidjs/start/router";
export default () => <Router><FileRoutes /></Router>;
`,
      "src/entry-client.jsx": `
import { mount, StartClient } from "@solidjs/start/client";
mount(() => <StartClient />, document.body);
`,
      "src/entry-server.jsx": `
import { createHandler, StartServer } from "@solidjs/start/server";
const Page = ({ assets, children, scripts }) => (
  <html><head>{assets}</head><body>{children}{scripts}</body></html>
);
export default createHandler(() => <StartServer document={Page} />);
`,
      "src/routes/work.js": served("solidjs", "../..", "export const { POST } = serve(route);"),
    },
    start: viteDev,
  },
  {
    name: "tanstack",
    packages: [
      ...["@tanstack/react-start@1.169.5", "@tanstack/react-router@1.170.46", "@vitejs/plugin-react@6.3.0"],
      ...[...react, vite, client],
    ],
    files: {
      "vite.config.js": viteConfig(
        `import { tanstackStart } from "@tanstack/react-start/plugin/vite";
import react from "@vitejs/plugin-react";`,
        "tanstackStart(), react()",
      ),
      "tsconfig.json": '{ "compilerOptions": { "jsx": "react-jsx" } }',
      "src/router.tsx": `
import { createRouter } from "@tanstack/react-router";
import { routeTree } from "./routeTree.gen";
export const getRouter = () => createRouter({ routeTree });
`,
      "src/routes/__root.tsx": `
import { createRootRoute, HeadContent, Outlet, Scripts } from "@tanstack/react-router";
export const Route = createRootRoute({
  component: () => <html><head><HeadContent /></head><body><Outlet /><Scripts /></body></html>,
});
`,
      "src/routes/work.ts": served(
        "tanstack",
        "../..",
        `import { createFileRoute } from "@tanstack/react-router";
export const Route = createFileRoute("/work")({ server: { handlers: serve(route) } });`,
      ),
    },
    start: viteDev,
  },
  {
    name: "react-router",
    packages: [
      ...["react-router@8.4.0", "@react-router/dev@8.4.0", "@react-router/node@8.4.0"],
      ...["@react-router/serve@8.4.0", "isbot@5.2.3", ...react, vite, client],
    ],
    files: {
      "vite.config.js": viteConfig('import { reactRouter } from "@react-router/dev/vite";', "reactRouter()"),
      "app/root.jsx": `
import { Outlet, Scripts } from "react-router";
export default () => <html><body><Outlet /><Scripts /></body></html>;
`,
      "app/routes.js": `
import { route } from "@react-router/dev/routes";
export default [route("work", "work-route.js")];
`,
      "app/work-route.js": served("react-router", "..", "export const action = serve(route);"),
    },
    start: (port) => [
      "node_modules/@react-router/dev/bin.cjs",
      ...["dev", "--host", "127.0.0.1", "--port", String(port)],
    ],
  },
  {
    name: "workers",
    packages: ["miniflare@4.20260730.0", "rolldown@1.2.19", client],
    files: {
      "worker.js": served("cloudflare", ".", "export default serve(route);"),
      "server.mjs": `
import { Miniflare } from "miniflare";
import { rolldown } from "rolldown";
const bundle = await rolldown({ input: "worker.js", platform: "browser" });
const { output } = await bundle.generate({ format: "es" });
const bindings = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => /^(QSTASH|UPSTASH)_/.test(name)),
);
const worker = new Miniflare({
  modules: [{ type: "ESModule", path: "worker.js", contents: output[0].code }],
  bindings,
  host: "127.0.0.1",
  port: Number(process.argv[2]),
  compatibilityDate: "2026-01-01",
  compatibilityFlags: ["nodejs_compat"],
});
await worker.ready;
`,
    },
    start: (port) => ["server.mjs", String(port)],
  },
];
