import * as present from "@upstash/qstash";
import { beforeAll, beforeEach, describe } from "vitest";
import { presentVersion } from "../published/presentVersion.ts";
import { findPublished } from "../published/published.ts";

/** The package of the client for messages, in any version. */
export type Qstash = typeof present;

/**
 * Runs tests with the client of this repository, and in the long tests with the version of a product. The
 * tests call `load` while they run.
 */
export function describeWithClients(pinned: string, tests: (load: () => Qstash) => void): void {
  describe(`with @upstash/qstash ${presentVersion("@upstash/qstash")}`, () => {
    tests(() => present);
  });
  describe(`with @upstash/qstash ${pinned}`, { tags: "long" }, () => {
    let found: Awaited<ReturnType<typeof findPublished>> = "not looked for";
    beforeAll(async () => void (found = await findPublished("@upstash/qstash", pinned)), 200_000);
    beforeEach(({ skip }) => {
      if (typeof found === "string") skip(found);
    });
    tests(() => {
      if (typeof found === "string") throw new Error(found);
      return found.load<Qstash>("@upstash/qstash");
    });
  });
}
