import { limits } from "../values/limits.ts";
import type { MessageInput } from "../model/message.ts";

/**
 * The limit of one transaction, about 1,024 rows. It is limited because other commands wait for the
 * transaction. A heavier command is stored alone. Bodies count as one row per 4 KiB, so one transaction
 * stores at most 4 MiB of bodies.
 */
export const transaction = { rows: 1024, bytesPerRow: 4 * 1024 } as const;

/** The rows that a message writes, in addition to one row for each of its labels. */
const rowsPerMessage = 2;

/**
 * The maximum weight, in rows, of one part of a long list of messages. Other commands are stored between the
 * parts.
 */
const maxPartRows = transaction.rows / 4;

type WeighedInput = Pick<MessageInput, "group" | "labels" | "body">;

/**
 * Returns the maximum number of messages that an input can create. For a group, this is the maximum number of
 * endpoints of a group.
 */
const maxMessageCount = ({ group }: Pick<MessageInput, "group">): number =>
  group === null ? 1 : limits.endpoints;

const weighInput = (input: WeighedInput): number =>
  maxMessageCount(input) *
  (rowsPerMessage + input.labels.length + input.body.byteLength / transaction.bytesPerRow);

/** Returns the bytes of the bodies that a command stores. */
export function countBodyBytes(command: unknown): number {
  if (typeof command !== "object" || command === null) return 0;
  if (hasInputs(command))
    return command.inputs.reduce((sum, input) => sum + maxMessageCount(input) * input.body.byteLength, 0);
  return "body" in command && command.body instanceof Uint8Array ? command.body.byteLength : 0;
}

/** Returns the weight of a command in a transaction, in rows. */
export function weighCommand(command: unknown): number {
  if (typeof command === "object" && command !== null && hasInputs(command)) {
    let weight = 0;
    for (const input of command.inputs) weight += weighInput(input);
    return weight;
  }
  return rowsPerMessage + countBodyBytes(command) / transaction.bytesPerRow;
}

const hasInputs = (command: object): command is { inputs: readonly WeighedInput[] } =>
  "inputs" in command && Array.isArray(command.inputs);

/**
 * Divides a list of messages into parts that are stored one after another, in their order. A message to a URL
 * group is never divided, so it reaches all of its endpoints or none. A list with messages of workflow runs
 * is not divided, because it is accepted as a whole or not at all.
 */
export function splitInputs(inputs: readonly MessageInput[]): (readonly MessageInput[])[] {
  if (inputs.length <= 1 || inputs.some(({ post }) => post !== undefined)) return [inputs];
  const parts: MessageInput[][] = [];
  let weight = Infinity;
  for (const input of inputs) {
    const inputWeight = weighInput(input);
    if (weight + inputWeight > maxPartRows) {
      parts.push([]);
      weight = 0;
    }
    parts.at(-1)?.push(input);
    weight += inputWeight;
  }
  return parts;
}
