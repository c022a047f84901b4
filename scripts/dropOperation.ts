// The text of the files that list operations, without one of them.

/** The files with the lists of operations, and the program. */
export const listFiles = [
  "src/operations/stored.ts",
  "src/operations/served.ts",
  "src/client/commands.ts",
  "src/client/resources.ts",
  "src/server/cli/main.ts",
];

const importsOf = (operation: string): RegExp =>
  new RegExp(String.raw`^import (?:type )?\{([^}]*)\} from "[^"]*/${operation}/[^"]*";\n`, "gm");

/** Returns the names that a file imports from the folder of an operation. */
export const listImported = (source: string, operation: string): string[] =>
  [...source.matchAll(importsOf(operation))].flatMap(([, list = ""]) =>
    list.split(",").flatMap((name) => name.replace(/^\s*type\s+/, "").trim() || []),
  );

/** Removes the imports of a folder from the text of a list, and what uses the imported names. */
export function withoutOperation(source: string, operation: string): string {
  return listImported(source, operation).reduce(
    (left, name) =>
      left
        // A call at the top of the file or of a function, such as addJobCommands(program, context).
        .replace(new RegExp(String.raw`^( *)${name}(?:<\w+>)?\((?:[^\n]*|[^]*?\n\1\}?)\);\n`, "gm"), "")
        // A whole row, such as `{ routes: audit },`.
        .replace(new RegExp(String.raw`^ *(?:\{[^\n]*\b${name}\b[^\n]*\}|${name}),\n`, "gm"), "")
        // An element of a list on one line.
        .replace(new RegExp(String.raw`([[ ])${name}, `, "g"), "$1")
        .replace(new RegExp(String.raw`, ${name}\b(?=[,\]])`, "g"), ""),
    source.replace(importsOf(operation), ""),
  );
}
