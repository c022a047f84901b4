import { existsSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import type { MarkdownRenderer } from "vitepress";

/** The pages of the site: the path of each by its file in the repository. */
export type PagePaths = ReadonlyMap<string, string>;

/** The folders whose files the site offers beside its pages, because its pages name them. */
export const offeredFolders = ["deploy", "examples"] as const;

/** Returns where the site has a file that is not a page. A type that browsers do not show would be downloaded. */
export const toOfferedFile = (file: string): string =>
  file.startsWith("docs/") ? file.slice("docs/".length) : `files/${file}.txt`;

const isOffered = (file: string): boolean =>
  file === "docs/openapi.json" || offeredFolders.some((folder) => file.startsWith(`${folder}/`));

type Links = { home: string; pages: PagePaths };
type Token = MarkdownRenderer extends { parse(source: string, env: object): (infer T)[] } ? T : never;

/**
 * Turns links between files of the repository into links between pages. The text of a link to a file that is
 * not a page stays, without the link. Throws if a link in a clone of the repository names a file that does
 * not exist.
 */
export function linkPages(markdown: MarkdownRenderer, links: Links): void {
  markdown.core.ruler.push("link pages", ({ tokens, env }) => {
    const { realPath, path } = env as { realPath?: string; path: string };
    const folder = dirname(realPath ?? path);
    for (const { children } of tokens) if (children) linkTokens(children, folder, links);
  });
}

/** Keeps the two HTML elements that cells of generated tables have: an anchor, and a break. */
export function allowAnchors(markdown: MarkdownRenderer): void {
  markdown.inline.ruler.before("autolink", "anchors", (state, isSilent) => {
    const [element] =
      /^(?:<a id="[\w-]+"><\/a>|<br>)/.exec(state.src.slice(state.pos, state.pos + 100)) ?? [];
    if (element === undefined) return false;
    if (!isSilent) state.push("html_inline", "", 0).content = element;
    state.pos += element.length;
    return true;
  });
}

function linkTokens(tokens: Token[], folder: string, links: Links): void {
  let isUnlinked = false;
  for (const token of tokens) {
    if (token.type === "link_open") {
      const target = findPage(String(token.attrGet("href")), folder, links);
      isUnlinked = target === null;
      if (target !== null) token.attrSet("href", target);
    }
    if (!isUnlinked || !token.type.startsWith("link_")) continue;
    isUnlinked = token.type !== "link_close";
    Object.assign(token, { type: "text", tag: "", content: "", nesting: 0 });
  }
}

function findPage(href: string, folder: string, { home, pages }: Links): string | null {
  if (/^(https?:|mailto:|#|\/)/.test(href)) return href;
  const [path = "", anchor] = decodeURI(href).split("#");
  const file = relative(home, join(folder, path)).split(sep).join("/");
  const page = pages.get(file) ?? pages.get(`${file}/README.md`);
  if (page !== undefined) return `/${page}${anchor === undefined ? "" : `#${anchor}`}`;
  if (isOffered(file) && existsSync(join(home, file))) return `/${toOfferedFile(file)}`;
  // An image is built from a part of the repository.
  const isWhole = existsSync(join(home, ".git"));
  if (isWhole && !existsSync(join(home, file)))
    throw new Error(`${folder}: a link to ${href}, which does not exist`);
  return null;
}
