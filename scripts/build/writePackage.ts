import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { home } from "../../launch/modernNode.js";
import { buildConsole } from "../buildConsole.js";
import { buildSite, sitePackFile } from "../buildSite.ts";
import { bundle, sitePackName } from "./bundle.ts";
import { collectLicences, findConsolePackages } from "./licences.ts";
import { makePackageFile } from "./packageFile.ts";

/**
 * Writes the npm package: the server in one file, the documentation, the launcher, and the licences of what
 * it contains. Replaces a folder that has an earlier package, and refuses any other. Returns the size of the
 * file and the number of packages in it.
 */
export async function writePackage(
  target: string,
  { withSite }: { withSite: boolean },
): Promise<{ bytes: number; packages: number }> {
  if (existsSync(target) && !existsSync(join(target, serverFile)))
    throw new Error(`${target}: exists and is not a build; choose a folder that does not exist`);
  buildConsole();
  if (withSite) buildSite();
  const { server, client, packages: joined } = await bundle(home);
  const packages = [...new Set([...joined, ...findConsolePackages(home)])].toSorted();
  rmSync(target, { recursive: true, force: true });
  mkdirSync(join(target, "server"), { recursive: true });
  writeFileSync(join(target, serverFile), server);
  writeFileSync(join(target, "server/client.cjs"), client);
  if (withSite) cpSync(sitePackFile, join(target, "server", sitePackName));
  writeFileSync(join(target, "THIRD-PARTY-LICENSES.txt"), collectLicences(home, packages));
  for (const name of ["launch", "LICENSE", "NOTICE", "CHANGELOG.md"])
    cpSync(join(home, name), join(target, name), { recursive: true });
  cpSync(join(home, "docs/package.md"), join(target, "README.md"));
  const root = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as Record<string, unknown>;
  writeFileSync(join(target, "package.json"), `${JSON.stringify(makePackageFile(root), null, 2)}\n`);
  return { bytes: Buffer.byteLength(server), packages: packages.length };
}

const serverFile = "server/waypost.cjs";
