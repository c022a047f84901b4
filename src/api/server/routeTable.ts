import type { Route } from "../route/route.ts";
import { decoded } from "../http/target.ts";

/**
 * The path a target is routed by. A destination at its end may hold anything, so the router never sees it; nor does it
 * see what it could not decode, so that such a request goes the way of all others, and is refused by `refuseUnknown`.
 */
export function routedPath(path: string, method: string): string {
  const toDestination = method === "POST" ? scheduleAtDestination : null;
  const [routed] = /^\/v2\/(?:publish|trigger|enqueue\/[^/]+)(?=\/)/i.exec(path) ?? toDestination?.exec(path) ?? [path];
  return routed.includes("%") && decoded(routed) === null ? "/malformed" : routed;
}

/** A schedule is made at its destination, and paused and resumed at its id: no name of a URL group has a slash. */
const scheduleAtDestination = /^\/v2\/schedules(?=\/)(?!\/[\w.-]+\/(?:pause|resume)\/?$)/i;

/** The path of a row as the router is given it. */
export const routerPath = (path: string): string => path.replace("/{destination}", "").replaceAll(/\{(\w+)\}/g, ":$1");

/** Finds the routes at a path, whatever the method. */
export type RouteTable = (path: string) => readonly Route[];

/** A row with the segments of its path in lower case. Null: any text that is not empty. */
type Row = { route: Route; segments: readonly (string | null)[] };

/** Prepares the rows once, so that finding the routes at a path compares texts and nothing else. */
export function routeTable(routes: readonly Route[]): RouteTable {
  const byLength = new Map<number, Row[]>();
  for (const route of routes) {
    const segments = routerPath(route.path)
      .split("/")
      .map((one) => (one.startsWith(":") ? null : one.toLowerCase()));
    byLength.set(segments.length, [...(byLength.get(segments.length) ?? []), { route, segments }]);
  }
  return (path) => {
    const posted = segmentsOf(routedPath(path, "POST"));
    const others = segmentsOf(routedPath(path, ""));
    const rows = [...(byLength.get(posted.length) ?? []), ...(others.length === posted.length ? [] : (byLength.get(others.length) ?? []))];
    return rows.filter((row) => isAt(row, row.route.method === "POST" ? posted : others)).map(({ route }) => route);
  };
}

const segmentsOf = (path: string): string[] =>
  path
    .toLowerCase()
    .replace(/(?<=.)\/$/, "")
    .split("/");

const isAt = ({ segments }: Row, given: readonly string[]): boolean =>
  segments.length === given.length && segments.every((one, at) => (one === null ? given[at] !== "" : one === given[at]));
