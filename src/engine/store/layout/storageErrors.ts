/** The storage was unavailable or the connection was lost, so it is unknown whether the batch was stored. */
export class Unavailable extends Error {}

/** The storage has no room for the batch. */
export class NoRoom extends Unavailable {}

/** Reports whether an error, or a cause of it, is a lack of room. */
export const lacksRoom = (error: unknown): boolean =>
  error instanceof NoRoom || (error instanceof Error && lacksRoom(error.cause));

/**
 * The transaction ended before its commit was sent, because the connection was lost or its time was over.
 * Nothing of the batch was stored.
 */
export class Interrupted extends Unavailable {}

/**
 * The tables were replaced by those of another version, to which this program must not write. Nothing of the
 * batch was stored.
 */
export class Outdated extends Unavailable {}

/**
 * The storage cannot be used: it belongs to another version or another program, it is damaged, or its keys
 * are missing.
 */
export class StorageRefused extends Error {}

/** The database has no tables yet. */
export class NoStore extends StorageRefused {}
