import { findOrigin, normalizeOrigin, readOriginHost } from "../engine/core/accounts/pulledOrigins.ts";
import { parseCron } from "../engine/core/values/cron.ts";
import { parseDuration } from "../engine/core/values/duration.ts";
import { Refusal } from "../engine/core/values/errors.ts";
import { isName } from "../engine/core/values/name.ts";
import { verbs } from "../engine/core/model/rights.ts";
import type { Given, Reader } from "./applyFile.ts";
import type { Problems } from "./applyFile.ts";
import { WrongValue, orNull, readCount, readEntries, readFlag, readList, readText } from "./applyFile.ts";
import type { GivenSettings } from "./applySettings.ts";
import { notForSchedules, settingsReader } from "./applySettings.ts";
import type { BodyValue, Origin } from "./applyValues.ts";
import { bodyReader, isReference, jsonReader, valueReader } from "./applyValues.ts";

/** A queue, key, URL group, schedule, source or token of the file. A field that the file lacks is absent. */
export type GivenQueue = { parallelism?: number; paused?: boolean; ackTimeout?: string };
export type GivenKey = {
  parallelism?: number | null;
  rate?: number | null;
  period?: string;
  paused?: boolean;
};
export type GivenEndpoint = { url: string; name: string };
export type GivenGroup = { endpoints: GivenEndpoint[]; settings?: GivenSettings };
export type GivenSchedule = {
  cron: string;
  destination: string;
  body?: BodyValue;
  settings?: GivenSettings;
  paused?: boolean;
};
export type GivenSource = {
  destination: string;
  urlFile: string;
  settings?: GivenSettings;
  verification?: unknown;
  deduplicate?: boolean;
  paused?: boolean;
};
export type GivenToken = { verbs: string[]; destinations: string[]; file: string; expires?: string };

/** The resources of a file, by their names. `pulled`: normalized origins, each once. */
export type GivenResources = {
  pulled: readonly string[];
  queues: ReadonlyMap<string, GivenQueue>;
  flowControl: ReadonlyMap<string, GivenKey>;
  urlGroups: ReadonlyMap<string, GivenGroup>;
  schedules: ReadonlyMap<string, GivenSchedule>;
  sources: ReadonlyMap<string, GivenSource>;
  tokens: ReadonlyMap<string, GivenToken>;
};

/** Reads the resources of a file. Adds everything that is wrong with them to `problems`. */
export function readResources(given: Given, origin: Origin, problems: Problems): GivenResources {
  const readValue = valueReader(origin);
  const readSettings = settingsReader(readValue);
  const readQueue = fieldsReader<GivenQueue>(problems, queueRow);
  const readEndpoint: Reader<GivenEndpoint> = (endpoint) => {
    const row = { url: readUrl, name: readText };
    const { url = "", name = "" } = problems.readFields(endpoint, row, ["url"]);
    return { url, name };
  };
  const readGroup = fieldsReader<GivenGroup>(
    problems,
    { endpoints: notEmpty(readList(readEndpoint)), settings: readSettings },
    ["endpoints"],
  );
  const readSchedule = fieldsReader<GivenSchedule>(
    problems,
    {
      cron: readCron,
      destination: readDestination,
      body: bodyReader(origin),
      settings: settingsReader(readValue, notForSchedules),
      paused: readFlag,
    },
    ["cron", "destination"],
  );
  const readSource = fieldsReader<GivenSource>(
    problems,
    {
      destination: readDestination,
      urlFile: readText,
      settings: readSettings,
      verification: orNull(verificationReader(origin, problems)),
      deduplicate: readFlag,
      paused: readFlag,
    },
    ["destination", "urlFile"],
  );
  const readToken: Reader<GivenToken> = (token) => {
    const row = {
      verbs: notEmpty(readList(readVerb)),
      destinations: readList(readText),
      expires: readExpiry,
      file: readText,
    };
    const { destinations = [], ...rest } = problems.readFields(token, row, ["verbs", "file"]);
    return { ...rest, destinations } as GivenToken;
  };
  const row = {
    pulled: readOrigins,
    queues: namesReader(problems, readQueue, isName),
    flowControl: namesReader(problems, keyReader(problems)),
    urlGroups: namesReader(problems, readGroup, isName),
    schedules: namesReader(problems, readSchedule, isName),
    sources: namesReader(problems, readSource),
    tokens: namesReader(problems, readToken),
  };
  const none = { pulled: [], queues: new Map(), flowControl: new Map(), urlGroups: new Map() };
  const noneEither = { schedules: new Map(), sources: new Map(), tokens: new Map() };
  return { ...none, ...noneEither, ...problems.readFields(given, row) };
}

function keyReader(problems: Problems): Reader<GivenKey> {
  const readLimits = fieldsReader<GivenKey>(problems, {
    parallelism: orNull(readCount),
    rate: orNull(readCount),
    period: readPeriod,
    paused: readFlag,
  });
  return (given) => {
    const key = readLimits(given);
    if (key.rate !== null || key.period === undefined) return key;
    throw new WrongValue(given, "period is unpinned together with rate; remove period");
  };
}

/** A result without a field that is required is never used, because it has a problem. */
const fieldsReader =
  <T>(
    problems: Problems,
    row: { readonly [N in keyof Required<T>]: Reader<unknown> },
    required: readonly (keyof T & string)[] = [],
  ): Reader<T> =>
  (given) =>
    problems.readFields(given, row, required) as T;

/** Returns a reader of resources by their names. */
const namesReader =
  <T>(problems: Problems, read: Reader<T>, isValid = isShortText): Reader<ReadonlyMap<string, T>> =>
  (given) => {
    const readNamed = (name: string, value: Given): T => {
      if (isValid(name)) return read(value);
      throw new WrongValue(value, "is not a valid name; use letters or digits, ., _ and -");
    };
    const found = readEntries(given).flatMap(([name, value]): [string, T][] => {
      const result = problems.collect(() => readNamed(name, value));
      return result === undefined ? [] : [[name, result]];
    });
    return new Map(found);
  };

/** A name that is not in a path may have any characters that a terminal shows. */
const isShortText = (name: string): boolean => /^\P{Cc}{1,512}$/u.test(name) && name.trim() !== "";

const notEmpty =
  <T>(read: Reader<T[]>): Reader<T[]> =>
  (given) => {
    const items = read(given);
    if (items.length > 0) return items;
    throw new WrongValue(given, "is empty; give at least one");
  };

const readUrl: Reader<string> = (given) => {
  const url = readText(given);
  if (/^https?:\/\/[\x21-\x7e]+$/i.test(url) && !url.includes("#") && URL.canParse(url)) return url;
  throw new WrongValue(given, "is not a URL with http:// or https://; write special characters as %20");
};

const readDestination: Reader<string> = (given) => {
  const destination = readText(given);
  return isName(destination) ? destination : readUrl(given);
};

/** Returns a reader of a string that the engine parses. Its refusals begin with the name of the field. */
const parsedReader =
  (parse: (text: string) => string): Reader<string> =>
  (given) => {
    try {
      return parse(readText(given));
    } catch (error) {
      if (error instanceof Refusal) throw new WrongValue(given, error.message.replace(/^\w+: /, ""));
      throw error;
    }
  };

const readCron = parsedReader(parseCron);
const readOrigin = parsedReader(normalizeOrigin);

const readOrigins: Reader<string[]> = (given) => {
  const origins = [...new Set(readList(readOrigin)(given))];
  const twice = origins.find((one) => findOrigin(origins, readOriginHost(one)) !== one);
  if (twice === undefined) return origins;
  throw new WrongValue(given, `has both schemes of ${readOriginHost(twice)}, which are the same; remove one`);
};

const durationReader =
  (problem: string): Reader<string> =>
  (given) => {
    const text = readText(given);
    if (parseDuration(text)) return text;
    throw new WrongValue(given, problem);
  };

const queueRow = {
  parallelism: readCount,
  paused: readFlag,
  ackTimeout: (given: Given) => readPeriod(given),
};
const readPeriod = durationReader("is not a duration such as 1m");
const readExpiry = durationReader("is not a duration from now, such as 30d");

const readVerb: Reader<string> = (given) => {
  const text = readText(given);
  const verb = verbs.find((one) => one === text);
  if (verb !== undefined) return verb;
  throw new WrongValue(given, `must be one of ${verbs.join(", ")}`);
};

/** Reads how a source verifies calls. The server checks the values, which depend on the scheme. */
const verificationReader =
  (origin: Origin, problems: Problems): Reader<Record<string, unknown>> =>
  (given) => {
    const json = jsonReader(origin);
    const secret: Reader<unknown> = (value) =>
      value.kind === "list" && !isReference(value)
        ? value.items.map((item) => valueReader(origin)(item).text)
        : valueReader(origin)(value).text;
    const part =
      (names: readonly string[]): Reader<unknown> =>
      (value) =>
        problems.readFields(value, Object.fromEntries(names.map((name) => [name, json])));
    const row: Record<string, Reader<unknown>> = {
      ...Object.fromEntries(verificationTexts.map((name) => [name, readText])),
      secret,
      timestamp: part(["header", "unit", "toleranceSeconds"]),
      handshake: part(["kind", "verifyToken", "parameter"]),
    };
    return problems.readFields(given, row, ["scheme", "secret"]);
  };

const verificationTexts = [
  ...["scheme", "header", "algorithm", "encoding", "prefix"],
  ...["signed", "eventIdHeader", "deduplicateBy"],
];
