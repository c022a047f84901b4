import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { consoleBase } from "./api/client.ts";
import type { SearchParams } from "./parts/filters.tsx";
import { Missing, PageFailed, PageLoading } from "./pages/other.tsx";
import { OverviewPage } from "./operations/overview/overview.tsx";
import { Shell } from "./shell/shell.tsx";

const validateSearch = (given: Record<string, unknown>): SearchParams =>
  Object.fromEntries(
    Object.entries(given)
      .filter(([, value]) => typeof value === "string" || typeof value === "number")
      .map(([name, value]) => [name, String(value)]),
  );

const root = createRootRoute({ component: Shell, notFoundComponent: Missing, validateSearch });

const overview = createRoute({ getParentRoute: () => root, path: "/", component: OverviewPage });

const messages = createRoute({
  getParentRoute: () => root,
  path: "/messages",
  component: lazyRouteComponent(() => import("./pages/messages/messages.tsx"), "MessagesPage"),
});

const queues = createRoute({
  getParentRoute: () => root,
  path: "/queues",
  component: lazyRouteComponent(() => import("./pages/flow/queues.tsx"), "QueuesPage"),
});

const queue = createRoute({
  getParentRoute: () => root,
  path: "/queues/$name",
  component: lazyRouteComponent(() => import("./pages/flow/queue.tsx"), "QueuePage"),
});

const keys = createRoute({
  getParentRoute: () => root,
  path: "/keys",
  component: lazyRouteComponent(() => import("./pages/flow/flowControlKeys.tsx"), "KeysPage"),
});

const deadLetters = createRoute({
  getParentRoute: () => root,
  path: "/dead-letters",
  component: lazyRouteComponent(() => import("./pages/failed/deadLetters.tsx"), "DeadLettersPage"),
});

const failedRuns = createRoute({
  getParentRoute: () => root,
  path: "/failed-runs",
  component: lazyRouteComponent(() => import("./pages/failed/failedRuns.tsx"), "FailedRunsPage"),
});

const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  component: lazyRouteComponent(() => import("./pages/runs/runs.tsx"), "RunsPage"),
});

const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$id",
  component: lazyRouteComponent(() => import("./pages/runs/run.tsx"), "RunPage"),
});

const hosts = createRoute({
  getParentRoute: () => root,
  path: "/hosts",
  component: lazyRouteComponent(() => import("./pages/flow/hosts.tsx"), "HostsPage"),
});

const host = createRoute({
  getParentRoute: () => root,
  path: "/hosts/$name",
  component: lazyRouteComponent(() => import("./pages/flow/host.tsx"), "HostPage"),
});

const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  component: lazyRouteComponent(() => import("./pages/inputs/schedules.tsx"), "SchedulesPage"),
});

const urlGroups = createRoute({
  getParentRoute: () => root,
  path: "/url-groups",
  component: lazyRouteComponent(() => import("./pages/inputs/urlGroups.tsx"), "UrlGroupsPage"),
});

const sources = createRoute({
  getParentRoute: () => root,
  path: "/sources",
  component: lazyRouteComponent(() => import("./operations/sources/sources.tsx"), "SourcesPage"),
});

const unpublished = createRoute({
  getParentRoute: () => root,
  path: "/not-published",
  component: lazyRouteComponent(() => import("./operations/unpublished/unpublished.tsx"), "UnpublishedPage"),
});

const outboxes = createRoute({
  getParentRoute: () => root,
  path: "/outboxes",
  component: lazyRouteComponent(() => import("./operations/outbox/outboxes.tsx"), "OutboxesPage"),
});

const events = createRoute({
  getParentRoute: () => root,
  path: "/events",
  component: lazyRouteComponent(() => import("./pages/inputs/events.tsx"), "EventsPage"),
});

const publish = createRoute({
  getParentRoute: () => root,
  path: "/publish",
  component: lazyRouteComponent(() => import("./pages/tools/publish.tsx"), "PublishPage"),
});

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  component: lazyRouteComponent(() => import("./operations/jobs/jobs.tsx"), "JobsPage"),
});

const tail = createRoute({
  getParentRoute: () => root,
  path: "/tail",
  component: lazyRouteComponent(() => import("./pages/tools/tail.tsx"), "TailPage"),
});

const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyRouteComponent(() => import("./pages/settings/settings.tsx"), "SettingsPage"),
});

const operator = createRoute({
  getParentRoute: () => root,
  path: "/operator",
  component: lazyRouteComponent(() => import("./pages/settings/operator.tsx"), "OperatorPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    messages,
    queues,
    queue,
    keys,
    deadLetters,
    failedRuns,
    runs,
    run,
    hosts,
    host,
    schedules,
    urlGroups,
    sources,
    unpublished,
    outboxes,
    events,
    publish,
    tail,
    jobs,
    settings,
    operator,
  ]),
  basepath: consoleBase.pathname,
  defaultErrorComponent: PageFailed,
  defaultPendingComponent: PageLoading,
  defaultPreload: "intent",
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(search))
      if (value !== undefined && value !== "") query.set(name, String(value));
    return query.size === 0 ? "" : `?${query}`;
  },
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
