import type { Response } from "../api/client.ts";
import { pace, useRead } from "../api/queries.ts";
import { useMay, useSession } from "../api/session.ts";
import { formatCount } from "../parts/words.ts";

type Overview = Response<"GET /v2/overview">;
type Counted = { count: number; more?: true };

/** The count after the name of a page or a group: of all entries, or of those that are paused. */
export type PlaceCount = { text: string; isBad: boolean };

const formatMore = ({ count, more }: Counted): string => `${formatCount(count)}${more ? "+" : ""}`;

const ofAll = (counted: Counted): PlaceCount => ({
  text: counted.count === 0 ? "" : formatMore(counted),
  isBad: false,
});
const ofPaused = ({ count }: Counted): PlaceCount => ({
  text: count === 0 ? "" : `${formatCount(count)} paused`,
  isBad: false,
});

/**
 * The count of each page that has one, by its path, and of the group of failures by its title. The overview
 * counts the dead letters of messages and of runs together.
 */
const counts: Readonly<Record<string, (overview: Overview) => PlaceCount>> = {
  Failed: ({ deadLetters }) => ({ ...ofAll({ count: deadLetters }), isBad: true }),
  "/messages": ({ unfinished }) => ofAll(unfinished),
  "/runs": ({ runs }) => ofAll(runs.active),
  "/queues": ({ paused }) => ofPaused(paused.queues),
  "/keys": ({ paused }) => ofPaused(paused.keys),
  "/schedules": ({ paused }) => ofPaused(paused.schedules),
  "/sources": ({ paused }) => ofPaused(paused.sources),
};

/**
 * Returns the counts of pages and groups from the overview. It is read every half minute, however many pages
 * are opened, and after each change. The overview page reads it more often, for both.
 */
export function usePlaceCounts(): (name: string) => PlaceCount | null {
  const { session } = useSession();
  const may = useMay();
  const { data } = useRead(
    "GET /v2/overview",
    {},
    { every: pace.slow, enabled: session.account !== null && may.read, keep: false },
  );
  return (name) => {
    const found = data && counts[name]?.(data);
    return found && found.text !== "" ? found : null;
  };
}
