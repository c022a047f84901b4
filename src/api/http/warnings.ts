/** Adds a warning to the headers of an answer. The header is a list: several warnings have commas between them. */
export const addWarning = (headers: Readonly<Record<string, string>>, text: string): Record<string, string> => ({
  ...headers,
  "Waypost-Warning": [headers["Waypost-Warning"], text.replaceAll(/[^\x20-\x7e]/g, "?")].filter(Boolean).join(", "),
});

/** Returns the header `Waypost-Warning` for these warnings, or none. */
export const warningHeader = (warnings: readonly string[]): Record<string, string> => warnings.reduce(addWarning, {});
