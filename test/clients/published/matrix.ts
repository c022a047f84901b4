import { beforeAll, describe, expect, test } from "vitest";
import type { WorkflowUser } from "../workflowTestServer.ts";
import { shareWorkflowServer } from "../workflowTestServer.ts";
import { matrixCells, readMatrixTable } from "./page.ts";
import type { Published, PublishedName } from "./published.ts";
import { findPublished } from "./published.ts";
import { publishedVersions } from "./versions.ts";

/** One version of the package, and a user with a new account. */
export type Trial = { published: Published; user: WorkflowUser };

/** A feature of a client. `has` reports whether a version has it. */
export type Feature = {
  name: string;
  has?(published: Published): boolean;
  check(trial: Trial): Promise<void>;
};

/** The result of a test, in its `meta`. `scripts/clientMatrix.ts` reads it for the table of the guide. */
export type MatrixResult = { package: string; version: string; feature: string; result: "yes" | "absent" };

/** `npm run clients:matrix` sets it, and then writes the table from the results. */
const writesTable = process.env["WAYPOST_WRITES_MATRIX"] === "true";

/**
 * Installs each version of a package, and tests its features against one server. Each result must be the cell
 * that the guide has, so that the table of the guide is that of a run.
 */
export function describeMatrix(name: PublishedName, features: readonly Feature[]): void {
  const house = shareWorkflowServer();

  test.skipIf(writesTable)(`the guide has a row for each tested feature of ${name}, and no others`, () => {
    expect([...readMatrixTable(name).cells.keys()]).toEqual(features.map((feature) => feature.name));
  });

  /** Fails if the guide has another result. */
  const compareCell = ({ version, feature, result }: MatrixResult): void => {
    if (writesTable) return;
    const { versions, cells } = readMatrixTable(name);
    expect(cells.get(feature)?.[versions.indexOf(version)], "run npm run clients:matrix").toBe(
      matrixCells[result],
    );
  };

  describe.each(publishedVersions[name])(`${name} %s`, (version) => {
    let found: Published | string = "not looked for";
    beforeAll(async () => {
      found = await findPublished(name, version);
      if (typeof found === "string") process.stderr.write(`skipped: ${found}\n`);
    }, 200_000);

    const named = features.map((feature) => [feature.name, feature] as const);
    test.for(named)("%s", { timeout: 60_000 }, async ([, feature], { task, skip }) => {
      if (typeof found === "string") return skip(found);
      const matrix: MatrixResult = { package: name, version, feature: feature.name, result: "yes" };
      Object.assign(task.meta, { matrix });
      if (feature.has?.(found) === false) {
        matrix.result = "absent";
        compareCell(matrix);
        return skip("this version does not have it");
      }
      const trial = { published: found, user: house.createUser() };
      await expect(feature.check(trial)).resolves.toBeUndefined();
      compareCell(matrix);
    });
  });
}
