import { cpSync, globSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { transformerStyleToClass } from "@shikijs/transformers";
import { defineConfig } from "vitepress";
import { filesWithoutPage, groups } from "../navigation.ts";
import { toAnchor } from "../../scripts/markdown.ts";
import { allowAnchors, linkPages, offeredFolders, toOfferedFile } from "../sourceLinks.ts";

const home = fileURLToPath(new URL("../..", import.meta.url));

const decisions = readdirSync(join(home, "docs/decisions"))
  .filter((name) => /^\d/.test(name))
  .map((name) => `docs/decisions/${name}`);
/** The files of all pages. */
const files = [...groups.flatMap(({ pages }) => Object.values(pages)), ...decisions];

const orphans = globSync("docs/**/*.md", { cwd: home })
  .map((file) => file.split(sep).join("/"))
  .filter((file) => !files.includes(file) && !filesWithoutPage.includes(file));
if (orphans.length > 0) throw new Error(`add to site/navigation.ts: ${orphans.join(", ")}`);

/** Files outside `docs` whose page has another name. */
const renamed: Readonly<Record<string, string>> = {
  "SECURITY.md": "reporting-a-vulnerability.md",
  "bench/README.md": "benchmarks.md",
};

/** Returns the file of a page of the site: `README.md` is the page of its folder. */
const toSiteFile = (file: string): string =>
  (renamed[file] ?? file.replace(/^docs\//, ""))
    .replace(/(^|\/)README\.md$/, "$1index.md")
    .replace(/^[A-Z]+\.md$/, (name) => name.toLowerCase());
const rewrites = Object.fromEntries(files.map((file) => [file, toSiteFile(file)]));
const pages = new Map(
  files.map((file) => [
    file,
    toSiteFile(file)
      .replace(/(^|\/)index\.md$/, "$1")
      .replace(/\.md$/, ""),
  ]),
);

/** Colours of code as classes, because the content security policy forbids styles in the page. */
const colours = transformerStyleToClass({ classPrefix: "code-" });

export default defineConfig({
  title: "Waypost",
  description: "Self-hosted HTTP message queue and durable workflow runner",
  base: "/docs/",
  srcDir: "..",
  outDir: "dist/site",
  cacheDir: "dist/cache",
  srcExclude: [
    "{console,deploy,dist,examples,launch,scripts,site,src,test}/**",
    "CODE_OF_CONDUCT.md",
    "bench/!(README).md",
    ...filesWithoutPage,
  ],
  rewrites,
  cleanUrls: true,
  metaChunk: true,
  // Otherwise the theme writes a style into the page when it becomes dark, which the policy forbids.
  appearance: { disableTransition: false },
  markdown: {
    // Text such as <url> is a placeholder, and comments are for the tests of the documentation.
    html: false,
    languageAlias: { env: "ini" },
    codeTransformers: [colours],
    anchor: { slugify: (heading) => toAnchor(heading).slice(1) },
    config(markdown) {
      markdown.core.ruler.after("normalize", "remove comments", (state) => {
        state.src = state.src.replaceAll(/^<!--[\s\S]*?-->\n?/gm, "");
      });
      allowAnchors(markdown);
      linkPages(markdown, { home, pages });
    },
  },
  head: [["link", { rel: "stylesheet", href: "/docs/code.css" }]],
  // The theme sets these two again when the page is loaded, which the content security policy allows.
  transformHtml: (html) => html.replaceAll(/ style="(?:position:relative;|--vp-vh:0px;)"/g, ""),
  buildEnd({ outDir }) {
    writeFileSync(join(outDir, "code.css"), colours.getCSS());
    const offered = globSync(`{${offeredFolders.join(",")}}/**/*.*`, { cwd: home });
    for (const file of ["docs/openapi.json", ...offered.map((one) => one.split(sep).join("/"))])
      cpSync(join(home, file), join(outDir, toOfferedFile(file)));
    writeFileSync(join(outDir, "llms-full.txt"), userFiles.map(readPage).join("\n\n"));
    writeFileSync(join(outDir, "llms.txt"), listPages());
  },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    sidebar: groups.map(({ title, pages: listed }) => ({
      text: title,
      collapsed: ["API requests", "Internals"].includes(title),
      items: Object.entries(listed).map(([text, file]) => ({ text, link: `/${pages.get(file)}` })),
    })),
  },
});

/** Comments are for the tests of the documentation. */
const readPage = (file: string): string =>
  readFileSync(join(home, file), "utf8")
    .replaceAll(/^<!--[\s\S]*?-->\n?/gm, "")
    .trim();

/** Returns the first sentence of a page after its heading. */
const readAbout = (file: string): string => {
  const paragraph = readPage(file)
    .split("\n\n")
    .find((one) => /^[A-Z`*[]/.test(one));
  const text = (paragraph ?? "").replaceAll("\n", " ").replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1");
  return /^.*?[.:](?=\s|$)/.exec(text)?.[0].replace(/:$/, ".") ?? text;
};

/** The groups that are for users: their pages are in the texts for language models. */
const userGroups = groups.filter(({ title }) => title !== "Internals");
const userFiles = userGroups
  .flatMap(({ pages: listed }) => Object.values(listed))
  .filter((file) => file !== "docs/messages.md");

/** Returns the list of pages in the form of https://llmstxt.org. */
const listPages = (): string =>
  [
    "# Waypost",
    "> Self-hosted HTTP message queue and durable workflow runner",
    ...userGroups.map(({ title, pages: listed }) =>
      [
        `## ${title}\n`,
        ...Object.entries(listed).map(
          ([text, file]) => `- [${text}](/docs/${pages.get(file)}): ${readAbout(file)}`,
        ),
      ].join("\n"),
    ),
    "",
  ].join("\n\n");
