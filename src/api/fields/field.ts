/**
 * One field of a resource, for everyone who shows it: the API and its documentation, the command line and,
 * through the documentation, the console. Plain data and pure readers, so that the command line need not
 * load the server.
 */
export type Field<Row> = {
  /** The meaning of the field. Empty for an object whose fields explain it. */
  about: string;
  shape: Shape;
  read(row: Row): unknown;
  /** Whether some rows do not have the field. Its reader returns null or undefined for them. */
  isOptional?: true;
  /** The heading of its column in lists of the command line. Without it, the heading is the name. */
  heading?: string;
};

/**
 * The content of a field. `of`: the words that it may be, or the fields of what is in it. `isLong`: a string
 * that the command line cuts to the width of the terminal. `isNullable`: it is shown even if it is null.
 */
export type Shape = (
  | { kind: "text"; isLong?: true }
  | { kind: "flag" | "mark" | "time" | "number" | "texts" | "times" | "counts" | "headers" | "settings" }
  | { kind: "reason" | "reasons" }
  | { kind: "integer"; min?: number; max?: number }
  | { kind: "word" | "words" | "wordMap"; of: readonly string[] }
  | { kind: "object" | "list"; of: FieldsOf<never> }
) & { isNullable?: true };

/** The fields of a resource, in the order in which the API shows them. */
export type FieldsOf<Row> = Readonly<Record<string, Field<Row>>>;

/** Makes a field from its text and its reader. */
type Make<Value> = <Row>(about: string, read: (row: Row) => Value, heading?: string) => Field<Row>;

const makeKind =
  <Value>(shape: Shape): Make<Value> =>
  (about, read, heading) => ({ about, read, shape, ...(heading !== undefined && { heading }) });

/** A string. */
export const text = makeKind<string>({ kind: "text" });
/** A string that may be long, such as a URL. */
export const longText = makeKind<string>({ kind: "text", isLong: true });
/** true or false. */
export const flag = makeKind<boolean>({ kind: "flag" });
/** Unix milliseconds. */
export const time = makeKind<number>({ kind: "time" });
/** A number that may be a fraction. */
export const number = makeKind<number>({ kind: "number" });
/** A whole number. */
export const integer = makeKind<number>({ kind: "integer" });
/** A whole number of at least 0. */
export const count = makeKind<number>({ kind: "integer", min: 0 });
/** A whole number of at least 1. */
export const positive = makeKind<number>({ kind: "integer", min: 1 });
/** The status of an HTTP response. */
export const status = makeKind<number>({ kind: "integer", min: 200, max: 999 });
/** A list of texts. */
export const texts = makeKind<readonly string[]>({ kind: "texts" });
/** A list of times, in Unix milliseconds. */
export const times = makeKind<readonly number[]>({ kind: "times" });
/** A list of whole numbers of at least 0. */
export const counts = makeKind<readonly number[]>({ kind: "counts" });
/** Headers: names to lists of values. */
export const headers = makeKind<Readonly<Record<string, readonly string[]>>>({ kind: "headers" });
/** Settings: names to values. */
export type Settings = Readonly<Record<string, string | readonly string[]>>;
/** Settings: names to values. */
export const settings = makeKind<Settings>({ kind: "settings" });

/** A reason why something waits, as `api/views/waitReasons.ts` makes it. */
export type ShownReason = { reason: string; text: string };
/** A reason why something waits. */
export const reason = makeKind<ShownReason>({ kind: "reason" });
/** Reasons why something waits. */
export const reasons = makeKind<readonly ShownReason[]>({ kind: "reasons" });

/** A field that is true or absent. */
export const mark: Make<boolean | undefined> = (about, read) => ({
  about,
  read: (row) => (read(row) === true ? true : null),
  shape: { kind: "mark" },
  isOptional: true,
});

/** A field that is one of these words. */
export const word = <const Word extends string>(of: readonly Word[]): Make<Word> =>
  makeKind({ kind: "word", of });

/** A list of these words. */
export const words = <const Word extends string>(of: readonly Word[]): Make<readonly Word[]> =>
  makeKind({ kind: "words", of });

/** Ids to these words. */
export const wordMap = <const Word extends string>(
  of: readonly Word[],
): Make<Readonly<Record<string, Word>>> => makeKind({ kind: "wordMap", of });

/** A field that has its own fields. */
export const object = <Inner>(of: FieldsOf<Inner>): Make<Inner> => makeKind({ kind: "object", of });

/** A list of objects. */
export const list = <Inner>(of: FieldsOf<Inner>): Make<readonly Inner[]> => makeKind({ kind: "list", of });

/** A field that some rows do not have. */
export const optional =
  <Value>(make: Make<Value>): Make<Value | null | undefined> =>
  // A field that is missing is omitted before its value is used.
  (about, read, heading) => ({ ...make(about, read as () => Value, heading), isOptional: true });

/** A field that is null for some rows. */
export const nullable =
  <Value>(make: Make<Value>): Make<Value | null> =>
  (about, read, heading) => {
    const field = make(about, read as () => Value, heading);
    return { ...field, shape: { ...field.shape, isNullable: true } };
  };

/** Returns a list, or null if it is empty, so that the field is omitted. */
export const omitEmpty = <One>(all: readonly One[]): readonly One[] | null => (all.length > 0 ? all : null);

/** Returns a row as the API shows it. */
export function toJson<Row>(fields: FieldsOf<NoInfer<Row>>, row: Row): Record<string, unknown> {
  const json: Record<string, unknown> = {};
  for (const name in fields) {
    const field = fields[name];
    const value = field && readJson(field, row);
    if (value !== undefined) json[name] = value;
  }
  return json;
}

function readJson<Row>({ read, shape }: Field<Row>, row: Row): unknown {
  const value = read(row);
  if (value === null || value === undefined) return shape.isNullable ? value : undefined;
  // `object` and `list` have checked that the value is what their fields read.
  if (shape.kind === "object") return toJson(shape.of, value as never);
  if (shape.kind === "list") return (value as never[]).map((one) => toJson(shape.of, one));
  return value;
}

/** Returns the fields without those that are null or undefined. */
export function omitMissing(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== null && value !== undefined),
  );
}
