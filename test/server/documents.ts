/**
 * The commands of a document, in order. All blocks of commands (`sh`, `bash`) are run, except for those after
 * a comment that readers do not see:
 *
 * - `<!-- not run: reason -->`: the test cannot run the block.
 * - `<!-- terminal: text -->`: the block runs in its own terminal until it is stopped. It is ready when it
 * has printed the text. With `<!-- terminal, alone: text -->` earlier terminals are closed first.
 * - `<!-- file: name -->`: the block, of any kind, is saved as a file.
 *
 * The expected output of a block is in the `json` or `text` block after it.
 */
export type Block =
  | { kind: "run"; commands: string; printed: string }
  | { kind: "terminal"; commands: string; printed: ""; ready: string; isAlone: boolean }
  | { kind: "file"; commands: string; printed: ""; name: string };

const fences = new RegExp(
  [/(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```\n/, /(?:\n```(?:json|text)\n(.*?)^```\n)?/]
    .map(({ source }) => source)
    .join(""),
  "gms",
);

/** Returns the code blocks of a document, with the expectations in the comments before them. */
export function parseBlocks(text: string): Block[] {
  return [...text.matchAll(fences)].flatMap(
    ([, comment = "", language = "", commands = "", printed = ""]): Block[] => {
      const [, what = "", rest = ""] = /^([\w ,]+): (.+)$/.exec(comment) ?? [];
      if (what === "not run") return [];
      if (what === "file") return [{ kind: "file", commands, printed: "", name: rest }];
      if (what.startsWith("terminal"))
        return [{ kind: "terminal", commands, printed: "", ready: rest, isAlone: what.endsWith("alone") }];
      return /^(?:sh|bash)$/.test(language) ? [{ kind: "run", commands, printed }] : [];
    },
  );
}

/** Reports whether an output matches. `…` matches any text, and blanks are ignored. */
export function matchesOutput(output: string, printed: string): boolean {
  if (printed === "") return true;
  const text = output.replaceAll(/\s/g, "");
  const parts = printed.replaceAll(/\s/g, "").split("…");
  const [first = "", last] = [parts[0], parts.length > 1 ? parts.at(-1) : undefined];
  if (last === undefined) return text === first;
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const place = text.indexOf(part, at);
    if (place < 0) return false;
    at = place + part.length;
  }
  return text.endsWith(last) && text.length - last.length >= at;
}
