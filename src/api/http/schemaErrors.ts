import type { z } from "zod";

const nouns: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "a JSON object",
  record: "a JSON object",
};

const countedNouns: Readonly<Record<string, string>> = { string: "characters", array: "entries" };

/**
 * Describes what is wrong with a value if its schema does not. The text never contains the value, which may
 * be a secret.
 */
export const describeIssue: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case "invalid_type":
      return issue.input === undefined ? "is missing" : `is not ${nouns[issue.expected] ?? issue.expected}`;
    case "too_small":
      if (issue.minimum === 1 && issue.origin in countedNouns) return "is empty";
      return issue.origin in countedNouns
        ? `has fewer than ${issue.minimum} ${countedNouns[issue.origin]}`
        : `is less than ${issue.minimum}`;
    case "too_big":
      return issue.origin in countedNouns
        ? `has more than ${issue.maximum} ${countedNouns[issue.origin]}`
        : `is more than ${issue.maximum}`;
    case "invalid_value":
      return `must be one of ${issue.values.map(String).join(", ")}`;
    case "invalid_union":
      return Array.isArray(issue.options) ? `is missing, or none of ${issue.options.join(", ")}` : undefined;
    case "invalid_format":
      return "does not have the required form";
    case "not_multiple_of":
      return `is not a multiple of ${issue.divisor}`;
    // The schemas, or `parseObject`, describe these errors themselves.
    case "custom":
    case "invalid_element":
    case "invalid_key":
    case "unrecognized_keys":
      return undefined;
  }
};
