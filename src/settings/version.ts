import { join } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { findCommit, formatVersion } from "./commit.ts";

// A bundle has the finished text in place of this file.

/** The version of this program, with the commit if it is not that of a release. */
export const version = formatVersion(
  packageFile.version,
  findCommit(join(import.meta.dirname, "../.."), packageFile.version),
);
