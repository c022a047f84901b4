import type { Api } from "./api.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readObjects, readRaw } from "./terminal/fields.ts";

const pageSize = 100;

/**
 * Returns the origin of the destination of a source, which is named by its id or its name. Fails if there is
 * none, if several have this name, or if the source publishes to a URL group.
 */
export async function findSourceOrigin(api: Api, named: string): Promise<string> {
  const found = await listSources(api, named);
  const [source, ...others] = found;
  if (!source) throw new CommandFailed("notFound", `--source: there is no source "${named}"`);
  if (others.length > 0)
    throw new CommandFailed(
      "usage",
      `--source: several sources are named "${named}"; ` +
        `give an id: ${found.map((one) => readLine(one, "sourceId")).join(", ")}`,
    );
  const destination = readRaw(source, "destination");
  const url = URL.parse(destination);
  if (url?.protocol === "https:" || url?.protocol === "http:") return url.origin;
  throw new CommandFailed(
    "usage",
    `--source: "${named}" publishes to the URL group ${readLine(source, "destination")}; ` +
      "give the origin of one of its endpoints",
  );
}

/** Returns the source with an id, or all sources with a name. */
async function listSources(api: Api, named: string): Promise<Fields[]> {
  const found: Fields[] = [];
  for (let cursor = ""; ;) {
    const page = await api.read({
      path: "/v2/sources",
      query: { count: pageSize, ...(cursor !== "" && { cursor }) },
      needs: { one: { sources: "objects" } },
    });
    const sources = readObjects(page, "sources");
    const byId = sources.find((one) => readRaw(one, "sourceId") === named);
    if (byId) return [byId];
    found.push(...sources.filter((one) => readRaw(one, "name") === named));
    const next = readRaw(page, "cursor");
    if (next === "" || next === cursor) return found;
    cursor = next;
  }
}
