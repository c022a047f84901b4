import { Readable } from "node:stream";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { ResponseLimits } from "./responseLimits.ts";

/**
 * The entries of a list, page by page, in order. The next page is read when the previous one has been sent.
 */
export type Pages = AsyncGenerator<readonly unknown[], void>;

/** A response body that is a list which is never in memory as a whole. */
export class PagedList {
  readonly pages: Pages;

  constructor(pages: Pages) {
    this.pages = pages;
  }
}

/** The text is passed on in pieces of about this many characters. */
const piece = 64 * 1024;

/**
 * Returns the JSON of a list. One page is returned as a string. More pages are returned as a stream, which
 * reads a page only when the client has received the one before.
 */
export async function toJsonText(
  { pages }: PagedList,
  account: AccountId,
  responseLimits: ResponseLimits,
): Promise<string | Readable> {
  const [first, second] = await responseLimits.runInTurn(account, async () => [
    await readPageTexts(pages),
    await readPageTexts(pages),
  ]);
  if (first === null || second === null) return `[${(first ?? []).join(",")}]`;
  return Readable.from(writePieces([first, second], { pages, account, responseLimits }), {
    objectMode: true,
    highWaterMark: 1,
  });
}

/** Returns the entries of the next page as JSON, or null if there are no more pages. */
async function readPageTexts(pages: Pages): Promise<string[] | null> {
  const { value, done } = await pages.next();
  return done ? null : value.map((entry) => JSON.stringify(entry));
}

type PageSource = { pages: Pages; account: AccountId; responseLimits: ResponseLimits };

async function* writePieces(
  firstPages: readonly string[][],
  { pages, account, responseLimits }: PageSource,
): AsyncGenerator<string, void> {
  let text = "[";
  let separator = "";
  const next = firstPages.map((page) => ({ page, gone: responseLimits.reserve(account, sumLengths(page)) }));
  try {
    for (;;) {
      const { page, gone } =
        next.shift() ?? (await responseLimits.runWhenRoom(account, () => readPageTexts(pages), sumLengths));
      if (page === null) break;
      try {
        for (const entry of page) {
          text += separator + entry;
          separator = ",";
          if (text.length < piece) continue;
          yield text;
          text = "";
        }
      } finally {
        gone?.();
      }
    }
    yield `${text}]`;
  } finally {
    for (const { gone } of next) gone?.();
    await pages.return();
  }
}

const sumLengths = (page: readonly string[] | null): number =>
  (page ?? []).reduce((sum, { length }) => sum + length, 0);
