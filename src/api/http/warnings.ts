/** Adds a warning to the headers of a response. The header is a list with commas between the warnings. */
export const addWarning = (
  headers: Readonly<Record<string, string>>,
  text: string,
): Record<string, string> => ({
  ...headers,
  "Waypost-Warning": [headers["Waypost-Warning"], text.replaceAll(/[^\x20-\x7e]/g, "?")]
    .filter(Boolean)
    .join(", "),
});

/** Returns the header `Waypost-Warning` for these warnings, or none. */
export const warningHeader = (warnings: readonly string[]): Record<string, string> =>
  warnings.reduce(addWarning, {});
