import { fillStatus, splitUrl } from "./words.ts";

/** A group of dead letters with one cause. */
type Group = { error: string; responseStatus?: number | undefined; url: string };

/** Returns the title of a group: its error, as it came. */
export const titleOf = ({ error, responseStatus }: Group): string =>
  fillStatus(error || "no response", responseStatus);

/**
 * Returns the part of the URL by which a group differs from others with the same title: its host, its path,
 * or both. Returns nothing if no other group has its title.
 */
export function findDifference(group: Group, all: readonly Group[]): string {
  const title = titleOf(group);
  const { host, path } = splitUrl(group.url);
  const others = all
    .filter((one) => one.url !== group.url && titleOf(one) === title)
    .map(({ url }) => splitUrl(url));
  if (others.length === 0) return "";
  const isOtherHost = others.some((one) => one.host !== host);
  const isOtherPath = others.some((one) => one.path !== path);
  return `${isOtherHost ? host : ""}${isOtherPath || !isOtherHost ? path || "/" : ""}`;
}
