/**
 * A command cannot run together with the other commands of its batch. It changes nothing, and runs again in
 * its own batch.
 */
export class RetryInNextBatch extends Error {}

/** A list that was read for one command of the batch, and that no other command may use. */
export type OwnList<List> = { command: number; list: List };

/**
 * Returns the list if it belongs to a command, and null if it must be loaded for it. The first command that
 * reads a list has it, even if a later one was the first to want it. Throws `RetryInNextBatch` if an earlier
 * command has it.
 */
export function readOwnList<List>(own: OwnList<List> | null | undefined, command: number): List | null {
  if (!own || own.command > command) return null;
  if (own.command < command) throw new RetryInNextBatch();
  return own.list;
}
