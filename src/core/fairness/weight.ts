import { limits } from "../values/limits.ts";
import type { Letter } from "../model/message.ts";

/**
 * The bound of one transaction, about 1,024 rows: others wait while it is made. A call that is heavier goes alone. Bodies count as
 * rows by their bytes, so at most 4 MiB of them go together.
 */
export const transaction = { rows: 1024, bytesPerRow: 4 * 1024 } as const;

/** Rows that a message writes, apart from one for each of its labels. */
const rowsOfMessage = 2;

/** A list of messages is stored in parts of about 256 rows, so that others have their turn in between. */
const mostOfPart = transaction.rows / 4;

type Weighed = Pick<Letter, "group" | "labels" | "body">;

/** To a group it may be as many messages as a group can have endpoints. */
const messagesOf = ({ group }: Pick<Letter, "group">): number => (group === null ? 1 : limits.endpoints);

const weightOfLetter = (letter: Weighed): number =>
  messagesOf(letter) * (rowsOfMessage + letter.labels.length + letter.body.byteLength / transaction.bytesPerRow);

/** Returns the bytes of the bodies that a command stores. */
export function bytesOf(input: unknown): number {
  if (typeof input !== "object" || input === null) return 0;
  if (hasLetters(input)) return input.letters.reduce((sum, letter) => sum + messagesOf(letter) * letter.body.byteLength, 0);
  return "body" in input && input.body instanceof Uint8Array ? input.body.byteLength : 0;
}

/** Returns how many rows a command is worth in a transaction. */
export function weightOf(input: unknown): number {
  if (typeof input === "object" && input !== null && hasLetters(input)) {
    let weight = 0;
    for (const letter of input.letters) weight += weightOfLetter(letter);
    return weight;
  }
  return rowsOfMessage + bytesOf(input) / transaction.bytesPerRow;
}

const hasLetters = (input: object): input is { letters: readonly Weighed[] } => "letters" in input && Array.isArray(input.letters);

/**
 * Divides a list of messages into parts that are stored one after another, in their order. A message to a URL group is never divided, so it
 * reaches all of its endpoints or none; and neither is a list with messages of workflow runs, which is taken as a whole or not at all.
 */
export function partsOf(letters: readonly Letter[]): (readonly Letter[])[] {
  if (letters.length <= 1 || letters.some(({ post }) => post !== undefined)) return [letters];
  const parts: Letter[][] = [];
  let weight = Infinity;
  for (const letter of letters) {
    const own = weightOfLetter(letter);
    if (weight + own > mostOfPart) {
      parts.push([]);
      weight = 0;
    }
    parts.at(-1)?.push(letter);
    weight += own;
  }
  return parts;
}
