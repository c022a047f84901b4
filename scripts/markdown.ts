// Markdown for the generated reference.

/** Returns the anchor that Markdown viewers give a heading. */
export const toAnchor = (heading: string): string =>
  `#${heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .replaceAll(" ", "-")}`;

/** Returns a Markdown table. */
export function makeTable(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const formatRow = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replace(/\s+/g, " ")).join(" | ")} |`;
  return [formatRow(head), `|${"---|".repeat(head.length)}`, ...rows.map(formatRow)];
}
