import { CommandFailed } from "./terminal/commandFailed.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/**
 * Returns a path of the API with ids in it: apiPath`/v2/messages/${id}`. Every command makes its paths here.
 * Fails for an id that names nothing, because its path would be that of the whole list, and a command that
 * deletes one entry would delete them all.
 */
export const apiPath = (parts: TemplateStringsArray, ...ids: readonly string[]): string =>
  String.raw({ raw: parts }, ...ids.map((id) => encodeURIComponent(requireId(id))));

/** Returns an id or a name unchanged. Fails if it is blank, or if a proxy would remove it from a path. */
export function requireId(id: string): string {
  if (id.trim() !== "" && id !== "." && id !== "..") return id;
  throw new CommandFailed(
    "usage",
    `"${toSafeLine(id)}" names nothing; give an id or a name (is a variable of the script empty?)`,
  );
}
