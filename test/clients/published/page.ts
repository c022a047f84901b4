import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { PublishedName } from "./published.ts";

const file = join(import.meta.dirname, "../../../docs/guides/compatible-clients.md");

const toCells = (line: string): string[] =>
  line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());

/** A table of the guide: the versions, and the cells of each feature, in the order of the versions. */
export type MatrixTable = { versions: string[]; cells: ReadonlyMap<string, string[]> };

/** Returns the table of a package in the guide of compatible clients. Without one, the table is empty. */
export function readMatrixTable(name: PublishedName): MatrixTable {
  const [, matrix = ""] = readFileSync(file, "utf8").split("<!-- The matrix: ");
  const [, rest = ""] = matrix.split(`\n| \`${name}\` |`);
  const [head = "", , ...lines] = rest.split("\n");
  const end = lines.findIndex((line) => !line.startsWith("|"));
  const rows = lines.slice(0, end).map(toCells);
  return {
    versions: toCells(`|${head}`),
    cells: new Map(rows.map(([feature = "", ...cells]) => [feature, cells])),
  };
}

/** The cell of a feature that a version has, and of one that it does not have. */
export const matrixCells = { yes: "yes", absent: "–" } as const;
