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

/** The headers that warn about a request that succeeded: how their texts begin, and what they mean. */
export const warningHelp: readonly { header: string; text: string; meaning: string }[] = [
  {
    header: "Waypost-Ignored",
    text: "Upstash-…",
    meaning:
      "These settings with the prefix `Upstash-` are unknown and were ignored. Check the spelling, or the " +
      "version of the client.",
  },
  {
    header: "Waypost-Warning",
    text: "destination: …",
    meaning:
      "Deliveries to this host are refused at present, because its address is not public. The message " +
      "was accepted, and fails unless the operator allows the address or the name " +
      "(`WAYPOST_EGRESS_ALLOW`). The field `warnings` of the response says the same.",
  },
  {
    header: "Waypost-Warning",
    text: "requests: … made today; …",
    meaning:
      "The account has published more messages today than its plan includes. Publishing is refused at the " +
      "hard limit (`day-limit-exceeded`).",
  },
  {
    header: "Waypost-Warning",
    text: "count: … exceeds the limit of …",
    meaning: "A page has fewer entries than requested. `cursor` continues with the next page.",
  },
];
