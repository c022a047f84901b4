import { hash } from "node:crypto";
import { firstIdAt } from "../../src/engine/core/values/ids.ts";
import type { IdKind, Millis } from "../../src/engine/core/values/basics.ts";
import { hour } from "../../src/engine/core/values/time.ts";
import type { Example } from "./recorder.ts";

type Options = {
  server: string;
  destination: string;
  /** What to show for each secret. */
  secrets: ReadonlyMap<string, string>;
  startedAt: Millis;
};

/** The time at which the examples seem to be recorded: 15 January 2026, 9:00 UTC. */
const shownTime: Millis = 1_768_467_600_000;

/** What to show for fields that are secret, or depend on the machine, the version or the calendar. */
const fixed: Readonly<Record<string, unknown>> = {
  password: "…",
  cause: "1008jc0vw5n",
  version: "0.1.0",
  duration: 12,
  latency: 12,
  connect: 1,
  firstByte: 11,
  p50: 12,
  p95: 12,
  storage: { used: 4_096, max: 500_000_000_000_000 },
  storedBytes: 4_096,
  disk: { free: 80_000_000_000, total: 250_000_000_000 },
  nextScheduleTime: Date.parse("2026-01-16T08:00:00Z"),
  nextTimes: [16, 19, 20, 21, 22].map((day) => Date.parse(`2026-01-${day}T08:00:00Z`)),
  x: "2026-01-15 09:00:00.000 +0000 UTC",
  y: 0,
  days: ["Thursday", "…"],
};

/**
 * A list with more entries is cut after the first one. So is a series, which has a value for each day of the
 * month, or for each minute.
 */
const maxEntries = 8;

const isCut = (list: readonly unknown[]): boolean =>
  list.length > maxEntries || (typeof list[0] === "object" && list[0] !== null && "x" in list[0]);

/**
 * Returns a function that replaces what differs between two recordings: ids, times, secrets and addresses. An
 * id or a time that occurs twice in an example stays equal.
 */
export function createSimplifier(options: Options): (example: Example) => Example {
  return (example) => simplifyValue(example, createTextSimplifier(options), options) as Example;
}

type Simplify = (text: string) => string;

function simplifyValue(value: unknown, simplify: Simplify, options: Options): unknown {
  if (Array.isArray(value)) {
    const items = isCut(value) ? [...value.slice(0, 1), "…"] : value;
    return items.map((item) => simplifyValue(item, simplify, options));
  }
  if (typeof value === "object" && value !== null)
    return Object.fromEntries(
      Object.entries(value).map(([name, field]) => [
        simplify(name),
        name in fixed && typeof field === typeof fixed[name]
          ? fixed[name]
          : simplifyValue(field, simplify, options),
      ]),
    );
  if (typeof value === "number") return simplifyTime(value, options.startedAt);
  return typeof value === "string" ? simplify(value) : value;
}

/** Returns the time to show for a number that is a time near the recording, and any other number. */
function simplifyTime(value: number, startedAt: Millis): number {
  if (Number.isInteger(value) && isNear(value, startedAt)) return moveTime(value, startedAt);
  if (Number.isInteger(value) && isNear(value * 1000, startedAt))
    return moveTime(value * 1000, startedAt) / 1000;
  return value;
}

const isNear = (time: Millis, startedAt: Millis): boolean => Math.abs(time - startedAt) < 400 * 24 * hour;

/** Moves a time to the shown time, in whole hours, because the recording takes some seconds. */
const moveTime = (time: Millis, startedAt: Millis): Millis =>
  shownTime + Math.round((time - startedAt) / hour) * hour;

function createTextSimplifier({ server, destination, secrets, startedAt }: Options): Simplify {
  const numberIds = createNumbering();
  const move = (time: string, format: (moved: Millis) => string): string => {
    const at = /^\d+$/.test(time) ? Number(time) : Date.parse(time);
    return isNear(at, startedAt) ? format(moveTime(at, startedAt)) : time;
  };
  const destinationHost = new URL(destination).host;
  // The path of a destination begins with what it responds, and the name of the account.
  const destinationUrl = new RegExp(`http://${destinationHost}/[\\w-]+/(?:[\\w-]+\\.)?`, "g");
  return (given) =>
    [...secrets]
      .reduce((text, [secret, shown]) => text.replaceAll(secret, shown), given)
      .replaceAll(/\beyJVc2VySUQiOi[\w+/=-]*/g, "eyJVc2VySUQiOi…")
      // The signature of a request that is pulled.
      .replaceAll(/\beyJhbGciOi[\w-]+\.[\w-]+\.[\w-]+/g, "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9…")
      .replaceAll(destinationUrl, "https://example.com/")
      .replaceAll(destinationHost, "example.com")
      .replaceAll(encodeURIComponent(destinationHost), "example.com")
      .replaceAll(new URL(server).host, "127.0.0.1:8080")
      .replaceAll(isoTime, (time) => move(time, (moved) => new Date(moved).toISOString()))
      .replaceAll(/\b\d{13}\b/g, (time) => move(time, String))
      .replaceAll(alertId, `00491241-$1-1rvx7cwtves`)
      .replaceAll(uuid, (id) => numberIds(id, "uuid", makeUuid))
      .replaceAll(generatedId, (id, kind: IdKind) =>
        numberIds(id, kind, (count) => makeId(kind, count, id.length)),
      )
      .replaceAll(deadLetterId, (id, time: string, rest: string) =>
        numberIds(id, "dlq", (count) => `${time}-${String(count).padStart(rest.length, "0")}`),
      );
}

const isoTime = /\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;
const alertId = /\b\d{8}-([a-z]+\.[a-z]+)-[0-9a-z]+\b/gi;
const uuid = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g;
const generatedId = /\b([a-z]{3})_[1-9A-HJ-NP-Za-km-z]{20,}/g;
const deadLetterId = /\b(\d{13})-(\d{1,12})\b/g;

/** Returns a function that replaces an id. The same id of a kind has the same replacement. */
function createNumbering() {
  const counts = new Map<string, number>();
  const known = new Map<string, string>();
  return (id: string, kind: string, make: (count: number) => string): string => {
    const found = known.get(id);
    if (found !== undefined) return found;
    const count = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, count);
    known.set(id, make(count));
    return make(count);
  };
}

/** Returns an id that looks like one of the shown time. */
function makeId(kind: IdKind, count: number, length: number): string {
  const digits = hash("sha512", `${kind} ${count}`, "base64").replaceAll(/[+/=0OIl]/g, "");
  return (firstIdAt(kind, shownTime) + digits).slice(0, length);
}

const makeUuid = (count: number): string =>
  hash("sha256", `uuid ${count}`).replace(
    /^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/,
    (_all, ...parts: string[]) => `${parts[0]}-${parts[1]}-4${parts[2]}-8${parts[3]}-${parts[4]}`,
  );
