/**
 * What a document tells its reader to do, in order. All blocks of commands (`sh`, `bash`) are run, but for those with a comment in the
 * line before them, which readers do not see:
 *
 * - `<!-- not run: reason -->`: what the test cannot do.
 * - `<!-- terminal: text -->`: goes on until it is stopped, in a terminal of its own, and is ready when it has printed the text;
 *   `<!-- terminal, alone: text -->`: the terminals that were opened before are closed first.
 * - `<!-- file: name -->`: a block of any kind that is kept as a file.
 *
 * What a block prints stands in the block `json` or `text` behind it, or in a comment there, `<!-- prints: text -->`.
 */
export type Block =
  | { kind: "run"; commands: string; printed: string }
  | { kind: "terminal"; commands: string; printed: ""; ready: string; isAlone: boolean }
  | { kind: "file"; commands: string; printed: ""; name: string };

const fences =
  /(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```\n(?:\n?<!-- prints: ([^\n]*) -->\n|\n(?=```(?:json|text)\n))?(?:```(?:json|text)\n(.*?)^```\n)?/gms;

export function parseBlocks(text: string): Block[] {
  return [...text.matchAll(fences)].flatMap(([, comment = "", language = "", commands = "", inComment, inBlock]): Block[] => {
    const [, what = "", rest = ""] = /^([\w ,]+): (.+)$/.exec(comment) ?? [];
    if (what === "not run") return [];
    if (what === "file") return [{ kind: "file", commands, printed: "", name: rest }];
    if (what.startsWith("terminal")) return [{ kind: "terminal", commands, printed: "", ready: rest, isAlone: what.endsWith("alone") }];
    return /^(?:sh|bash)$/.test(language) ? [{ kind: "run", commands, printed: inComment ?? inBlock ?? "" }] : [];
  });
}

/** Whether an output is what was printed; `…` stands for anything, and spaces for nothing. */
export function matchesOutput(output: string, printed: string): boolean {
  const [first = "", ...others] = printed.replaceAll(/\s/g, "").split("…");
  const text = output.replaceAll(/\s/g, "");
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const place = text.indexOf(part, at);
    if (place < 0) return false;
    at = place + part.length;
  }
  return printed === "" || others.at(-1) === "" || at === text.length;
}
