import type { Field, Shape } from "../api/fields/field.ts";
import type { Listed } from "./listCommand.ts";
import { readLine, readLines } from "./terminal/fields.ts";
import type { Column } from "./terminal/table.ts";
import { formatAge } from "./terminal/times.ts";

/** Returns the columns that show these fields of a resource. */
export const columnsOf = <Name extends string>(
  fields: Readonly<Record<Name, Field<never>>>,
  names: readonly NoInfer<Name>[],
): Column<Listed>[] =>
  names.map((name) => {
    const { heading = name.toUpperCase(), shape } = fields[name];
    return makeColumn(shape)(heading, name);
  });

function makeColumn(shape: Shape): (title: string, name: string) => Column<Listed> {
  if (shape.kind === "time") return ageField;
  if (shape.kind === "flag") return flagField;
  if (shape.kind === "integer" || shape.kind === "number") return numberField;
  return shape.kind === "text" && shape.isLong ? longField : field;
}

/** Returns a column that shows a field. */
const field = (title: string, name: string): Column<Listed> => ({
  title,
  show: ({ row }) => readLine(row, name),
});

/** Returns a column with a field that may be long. */
const longField = (title: string, name: string): Column<Listed> => ({
  ...field(title, name),
  shrinks: true,
});

/** Returns a column with a number. */
const numberField = (title: string, name: string): Column<Listed> => ({
  ...field(title, name),
  isNumber: true,
});

/** Returns a column that shows how far away a time is. */
const ageField = (title: string, name: string): Column<Listed> => ({
  title,
  show: ({ row, now }) => formatAge(row, name, now),
});

/** Returns a column that has its title in lower case where a field is true. */
const flagField = (title: string, name: string): Column<Listed> => ({
  title,
  show: ({ row }) => (row[name] === true ? title.toLowerCase() : ""),
  style: () => "yellow",
});

/** The labels of a message or a run. */
export const labels: Column<Listed> = {
  title: "LABELS",
  show: ({ row }) => readLines(row, "labels").join(", ") || readLine(row, "label"),
  shrinks: true,
};

/** The status of a response, or the error if there was none. */
export const failure: Column<Listed> = {
  title: "ERROR",
  show: ({ row }) => [readLine(row, "responseStatus"), readLine(row, "error")].filter(Boolean).join(" "),
  shrinks: true,
  style: () => "red",
};
