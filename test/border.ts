/** The border between the parts of src, as docs/architecture.md shows it. */

/**
 * The folders of each part of src, from the bottom up: a file may import from its folder and from those
 * before it. `operations` has no order: no operation imports another.
 */
const order: Readonly<Record<string, readonly string[]>> = {
  engine: [
    ...["core/caches", "core/values", "core/model", "core/node", "core/decision", "core/search"],
    ...["core/accounts", "core/cluster", "core/admission", "core/limits", "core/sending"],
    ...["core/workflows", "core/workflows/log", "core/explain", "core/deadLetters", "core/bulk"],
    ...["core/attempts"],
    ...["core/commands", "clock", "store/layout", "store/queries", "store/catalog", "store", "store/batch"],
    ...["store/histories", "store/sql", "store/sqlite", "store/postgres"],
    ...["delivery/http", "delivery", "upkeep"],
  ],
  api: [
    ...["http", "fields", "auth", "settings", "route", "publishing", "admission", "views"],
    ...["routes/lists", "routes/server", "routes/accounts", "routes/deadLetters", "routes/logs"],
    ...["routes/queues", "routes/groups", "routes/schedules", "routes/messages", "routes/workflows"],
    ...["routes", "fastPublish", "server"],
  ],
  settings: ["rows", ""],
  client: ["terminal", ""],
  server: ["site", "", "cli"],
};

/** The parts of src that each part may import, besides itself. */
const below: Readonly<Record<string, readonly string[]>> = {
  engine: [],
  api: ["engine"],
  settings: ["engine", "api"],
  operations: ["engine", "api", "settings"],
  client: [],
  server: ["engine", "api", "settings", "operations", "client"],
};

/** Imports that cross the border, each with its reason. */
const crossings: readonly { from: RegExp; to: RegExp }[] = [
  // The one list by which the store knows what operations keep.
  { from: /^src\/engine\/store\/catalog\//, to: /^src\/operations\/stored\.ts$/ },
  // The commands for a running server are loaded without the server: only pure code, and those of operations.
  { from: /^src\/client\//, to: /^src\/(?:engine\/(?:core|clock)|api\/fields)\// },
  { from: /^src\/client\//, to: /^src\/operations\/\w+\/verbs\.ts$/ },
  { from: /^src\/operations\/\w+\/verbs\.ts$/, to: /^src\/client\// },
  // The lists of operations, and the type of an operation.
  { from: /^src\/operations\/\w+\.ts$/, to: /^src\/operations\/\w+\// },
  { from: /^src\/operations\/\w+\//, to: /^src\/operations\/\w+\.ts$/ },
  // Croner is the only package that core may import. It is pure computation, as long as it is given no
  // function to run.
  { from: /^src\/engine\/core\/values\/cron\.ts$/, to: /^croner$/ },
];

/** The part of src that contains a file, and its folder within that part, or the name of its operation. */
function placeOf(file: string): { part: string; folder: string } {
  const [, part = "", ...folders] = file.split("/").slice(0, -1);
  return { part, folder: part === "operations" ? (folders[0] ?? "") : folders.join("/") };
}

/** Reports whether the folder of a file is part of the border. */
export function isPlaced(file: string): boolean {
  const { part, folder } = placeOf(file);
  return part === "operations" || (order[part]?.includes(folder) ?? false);
}

/** Reports whether a file of src may import a target: a path from the root of the project, or a package. */
export function mayImport(file: string, target: string): boolean {
  if (crossings.some(({ from, to }) => from.test(file) && to.test(target))) return true;
  const from = placeOf(file);
  // Node's modules and packages.
  if (!/^(src|test|bench|scripts)\//.test(target)) return !file.startsWith("src/engine/core/");
  if (!target.startsWith("src/")) return false;
  const to = placeOf(target);
  if (from.part !== to.part) return below[from.part]?.includes(to.part) ?? false;
  if (from.part === "operations") return from.folder === to.folder;
  const folders = order[from.part] ?? [];
  return folders.indexOf(to.folder) <= folders.indexOf(from.folder);
}

/** Reports whether the stored part of an operation may import a target. */
export const isStoredPart = (target: string, operation: string): boolean =>
  target.startsWith(`src/operations/${operation}/`) ||
  /^src\/engine\/(?:core|store\/(?:layout|queries))\//.test(target);
