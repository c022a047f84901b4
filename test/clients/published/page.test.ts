import { expect, test } from "vitest";
import { matrixCells, readMatrixTable } from "./page.ts";
import type { PublishedName } from "./published.ts";
import { publishedVersions } from "./versions.ts";

// The long tests compare each cell with the result of its test.

test.each(Object.keys(publishedVersions) as PublishedName[])(
  "the page of clients has a full matrix of the versions of %s that are tested",
  (name) => {
    const { versions, cells } = readMatrixTable(name);
    expect(versions, "run npm run clients:matrix").toEqual(publishedVersions[name]);
    expect(cells.size).toBeGreaterThan(0);
    for (const [feature, row] of cells) {
      expect(row, feature).toHaveLength(versions.length);
      expect(Object.values(matrixCells), feature).toEqual(expect.arrayContaining(row));
    }
  },
);
