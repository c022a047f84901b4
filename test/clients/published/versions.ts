import type { PublishedName } from "./published.ts";

/**
 * The latest release of each minor version that is tested: of `@upstash/qstash` from 2.7, and of
 * `@upstash/workflow` from 0.1. After a change, run `npm run clients:matrix`.
 */
export const publishedVersions: Readonly<Record<PublishedName, readonly string[]>> = {
  "@upstash/qstash": ["2.7.23", "2.8.4", "2.9.1", "2.10.1", "2.11.3", "2.12.0"],
  "@upstash/workflow": ["0.1.5", "0.2.23", "1.0.0", "1.1.1", "1.2.1", "1.3.3"],
};
