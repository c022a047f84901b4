import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

type PackageFacts = { name: string; version: string; license?: string; author?: string | { name: string } };

/**
 * Returns the licences of bundled packages as one text. `folders` are the folders of the packages. Throws if
 * the licence of a package is not known.
 */
export function collectLicences(home: string, folders: readonly string[]): string {
  const licences = folders.map((folder) => {
    const facts = JSON.parse(readFileSync(join(home, folder, "package.json"), "utf8")) as PackageFacts;
    const text = readTexts(join(home, folder)) || makeText(facts);
    if (text === null)
      throw new Error(`${folder}: has neither a licence text nor the licence MIT; add its text`);
    const title = `${facts.name} ${facts.version} (${facts.license ?? "see the text"})`;
    return `${line}\n${title}\n${line}\n\n${text}\n`;
  });
  const title = "server/waypost.cjs contains code of these packages, under their licences.";
  return `${title}\n\n${licences.join("\n")}`;
}

/** Returns the folders of the packages that the console imports, with everything that these depend on. */
export function findConsolePackages(home: string): string[] {
  const sources = globSync("console/src/**/*.{ts,tsx}", { cwd: home });
  const code = sources.map((file) => readFileSync(join(home, file), "utf8")).join("\n");
  const imports = code.matchAll(/from "((?:@[^/"]+\/)?[^./"][^/"]*)/g);
  const folders = new Set<string>();
  const add = (name: string): void => {
    const folder = `node_modules/${name}`;
    const file = join(home, folder, "package.json");
    if (folders.has(folder) || !existsSync(file)) return;
    folders.add(folder);
    const { dependencies = {} } = JSON.parse(readFileSync(file, "utf8")) as {
      dependencies?: Record<string, string>;
    };
    Object.keys(dependencies).forEach(add);
  };
  for (const [, name = ""] of imports) add(name);
  return [...folders];
}

const line = "=".repeat(80);

/** Returns the text of the MIT licence for a package that names the licence without its text. */
function makeText({ name, license, author }: PackageFacts): string | null {
  if (license !== "MIT") return null;
  const holder = typeof author === "object" ? author.name : (author ?? `the authors of ${name}`);
  return mitLicence.replace("<holder>", holder.replace(/ *<.*/, ""));
}

const mitLicence = readFileSync(join(import.meta.dirname, "mitLicence.txt"), "utf8").trim();

const readTexts = (folder: string): string =>
  readdirSync(folder)
    .filter((name) => /^(licen[cs]e|copying|notice)(\.|-|$)/i.test(name))
    .toSorted()
    .map((name) => readFileSync(join(folder, name), "utf8").replaceAll("\r\n", "\n").trim())
    .join("\n\n");
