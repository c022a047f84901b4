import { brandNames } from "../../engine/core/values/brand.ts";
import { parseBrandedHeader } from "../http/brand.ts";
import { hasSetting, percentDecode, splitTarget } from "../http/target.ts";
import type { Route } from "./route.ts";
import { listMethods } from "./route.ts";

/**
 * The parts of a request that decide its route. `target` is as sent. `rawHeaders` alternates names and
 * values.
 */
export type Routed = { method: string; target: string; rawHeaders: readonly string[] };

/**
 * Returns the path by which a request is routed, on the fast path and by the router of the framework. A
 * publish with a cron expression is routed to the schedules.
 */
export function routingPath({ method, target, rawHeaders }: Routed): string {
  const { path } = splitTarget(target);
  return publishPath.test(path) && makesSchedule({ method, target, rawHeaders })
    ? "/v2/schedules"
    : routedPath(path, method);
}

const publishPath = /^\/v2\/publish\//i;

/** Reports whether a publish has a cron expression in a header or in its query. It runs for every publish. */
function makesSchedule({ method, target, rawHeaders }: Routed): boolean {
  if (method !== "POST") return false;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const { length } = rawHeaders[at] ?? "";
    if (crons.has(length) && parseBrandedHeader(rawHeaders[at] ?? "")?.name === "cron") return true;
  }
  // Any character of the name may be percent-encoded.
  return /\?.*(?:cron|%)/is.test(target) && hasSetting(splitTarget(target).query, "cron");
}

/** The lengths of the names of cron headers. Most other names have another length. */
const crons: ReadonlySet<number> = new Set(
  Object.values(brandNames).map(({ prefix }) => `${prefix}-Cron`.length),
);

/**
 * Returns the path by which a target is routed. A destination may contain any characters, so the router never
 * sees it. A path that cannot be decoded becomes `/malformed`, so that it takes the same way as other
 * requests and `refuseUnknown` refuses it.
 */
export function routedPath(path: string, method: string): string {
  const toDestination = method === "POST" ? scheduleAtDestination : null;
  const [routed] = /^\/v2\/(?:publish|trigger|enqueue\/[^/]+)(?=\/)/i.exec(path) ??
    toDestination?.exec(path) ?? [path];
  return routed.includes("%") && percentDecode(routed) === null ? "/malformed" : routed;
}

/**
 * The path of a schedule has its destination when the schedule is created, and its id when it is paused,
 * resumed or run. The two cannot be confused, because the name of a URL group has no slash.
 */
const scheduleAtDestination = /^\/v2\/schedules(?=\/)(?!\/[\w.-]+\/(?:pause|resume|run)\/?$)/i;

/** Returns the path of a row in the syntax of the router. */
export const routerPath = (path: string): string =>
  path.replace("/{destination}", "").replaceAll(/\{(\w+)\}/g, ":$1");

/** A route, and the parameters in the path of a request to it. */
export type Found = { route: Route; params: Readonly<Record<string, string>> };

/** All routes of a port, to be found by path or by request. */
export type RouteTable = {
  /** Returns the routes at a path, for all methods. */
  at(path: string): readonly Route[];
  /**
   * Returns the route that the router of the framework chooses for a request. Returns null if there is
   * none, or if the path has characters that the router would decode or cut off.
   */
  find(request: Routed): Found | null;
};

/** A row with the segments of its path: as written, and in lower case with null for a parameter. */
type Row = { route: Route; routeSegments: readonly string[]; segments: readonly (string | null)[] };

/** Prepares the rows once, so that finding the routes at a path only compares texts. */
export function routeTable(routes: readonly Route[]): RouteTable {
  const rows = routes.map(toRow);
  const byLength = Map.groupBy(rows, ({ segments }) => segments.length);
  const find = createFinder(rows);
  return {
    at: (path) => {
      const posted = splitPath(routedPath(path, "POST"));
      const others = splitPath(routedPath(path, ""));
      const lengths = posted.length === others.length ? [posted.length] : [posted.length, others.length];
      const possible = lengths.flatMap((length) => byLength.get(length) ?? []);
      return possible
        .filter((row) => isAt(row, row.route.method === "POST" ? posted : others))
        .map(({ route }) => route);
    },
    find,
  };
}

function toRow(route: Route): Row {
  const routeSegments = routerPath(route.path).split("/");
  return {
    route,
    routeSegments,
    segments: routeSegments.map((one) => (one.startsWith(":") ? null : one.toLowerCase())),
  };
}

function createFinder(rows: readonly Row[]): RouteTable["find"] {
  const fixed = new Map<string, Map<string, Found>>();
  const withParameters = new Map<string, Row[]>();
  // A literal segment precedes a parameter at the same position, as in the router.
  for (const row of rows.toSorted(bySegments)) {
    for (const method of listMethods(row.route)) {
      if (!row.segments.includes(null))
        addFixed(fixed, method, { path: row.segments.join("/"), found: { route: row.route, params: {} } });
      else addTo(withParameters, toKey(method, row.segments), row);
    }
  }
  return ({ method, target, rawHeaders }) => {
    const path = withoutEnd(routingPath({ method, target, rawHeaders }));
    const ofMethod = fixed.get(method);
    const found = ofMethod?.get(path) ?? ofMethod?.get(path.toLowerCase());
    if (found || !/^[\w./-]+$/.test(path)) return found ?? null;
    const pathSegments = path.split("/");
    const lower = splitPath(path);
    const row = withParameters.get(toKey(method, pathSegments))?.find((one) => isAt(one, lower));
    return row ? { route: row.route, params: paramsIn(row, pathSegments) } : null;
  };
}

function addFixed(
  rows: Map<string, Map<string, Found>>,
  method: string,
  { path, found }: { path: string; found: Found },
): void {
  const ofMethod = rows.get(method) ?? new Map<string, Found>();
  rows.set(method, ofMethod.set(path, found));
}

const toKey = (method: string, { length }: readonly unknown[]): string => `${method} ${length}`;

const addTo = (rows: Map<string, Row[]>, key: string, row: Row): unknown =>
  rows.set(key, [...(rows.get(key) ?? []), row]);

function bySegments(one: Row, other: Row): number {
  for (const [at, segment] of one.segments.entries()) {
    const difference = Number(segment === null) - Number(other.segments[at] === null);
    if (difference !== 0) return difference;
  }
  return 0;
}

const paramsIn = ({ routeSegments }: Row, pathSegments: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    routeSegments.flatMap((one, at) => (one.startsWith(":") ? [[one.slice(1), pathSegments[at] ?? ""]] : [])),
  );

const withoutEnd = (path: string): string =>
  path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;

const splitPath = (path: string): string[] => withoutEnd(path).toLowerCase().split("/");

const isAt = ({ segments }: Row, pathSegments: readonly string[]): boolean =>
  segments.length === pathSegments.length &&
  segments.every((one, at) => (one === null ? pathSegments[at] !== "" : one === pathSegments[at]));
