import { DatabaseError } from "pg";
import { Unavailable } from "../layout/storageErrors.ts";
import { NoRoom } from "../layout/storageErrors.ts";

/** Returns the five-character code of a database error (SQLSTATE), or undefined for other errors. */
export const readSqlState = (error: unknown): string | undefined =>
  error instanceof DatabaseError ? error.code : undefined;

/**
 * Reports whether the error is a serialization failure, a deadlock or a lock timeout. No command causes these
 * errors, so running the commands of a batch separately would not help.
 */
export const isContention = (error: unknown): boolean =>
  ["40001", "40P01", "55P03"].includes(readSqlState(error) ?? "");
/** The SQLSTATE of the error if another node has created the same row. */
export const uniqueViolation = "23505";

/**
 * Reports whether the database has ended a transaction because it waited too long for the next statement.
 * That statement has not run.
 */
export const isIdleTimeout = (error: unknown): boolean =>
  error instanceof Unavailable ? isIdleTimeout(error.cause) : readSqlState(error) === "25P03";

/**
 * Reports whether the database lacks a resource, such as disk space (class 53). An immediate retry makes this
 * worse.
 */
export const isOutOfResources = (error: unknown): boolean =>
  error instanceof Unavailable
    ? isOutOfResources(error.cause)
    : (readSqlState(error)?.startsWith("53") ?? false);

/** The SQLSTATE of a full disk. */
const diskFull = "53100";

/**
 * Connection failures, missing resources, operator intervention, system errors, a standby, and transactions
 * that were ended because they were idle (PostgreSQL, Appendix A). No statement causes these errors.
 */
const outageCodes = /^(08|53|57|58)|^(25006|25P03)/;

/**
 * Converts an error of the driver. It becomes `Unavailable` if it has no database code, or a code in
 * `outageCodes`.
 */
function toStorageError(error: unknown): Error {
  if (error instanceof Unavailable) return error;
  const fault = error instanceof Error ? error : new Error(String(error));
  const code = readSqlState(fault);
  return code !== undefined && !outageCodes.test(code) ? fault : toUnavailable(fault);
}

/** Returns an `Unavailable` that names the cause and, if there is any, the advice for it. */
export function toUnavailable(cause: unknown): Unavailable {
  if (cause instanceof Unavailable) return cause;
  const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
  const [, advice] = adviceByMessage.find(([pattern]) => pattern.test(reason)) ?? [];
  const Failure = readSqlState(cause) === diskFull ? NoRoom : Unavailable;
  return new Failure(`PostgreSQL cannot be reached: ${reason}${advice === undefined ? "" : `; ${advice}`}`, {
    cause,
  });
}

/** Advice by the error texts of PgBouncer, Node.js, the driver and PostgreSQL. */
const adviceByMessage: readonly (readonly [words: RegExp, advice: string])[] = [
  [/unsupported startup parameter/, "behind a pooler, start with --database-pooling transaction"],
  [
    /self-signed certificate|unable to (verify the first|get (local )?issuer) certificate/,
    "if its certificate comes from a private authority, add sslrootcert=/path/ca.pem to the database URL",
  ],
  [
    /does not match certificate's altnames/,
    "use a host name in the database URL that the certificate is for",
  ],
  [/does not support SSL/, "turn TLS on there (ssl = on), or use sslmode=disable if the network is private"],
  [/, no encryption$/, "if the server requires TLS, add sslmode=verify-full to the database URL"],
];

/** Rethrows an error of the driver, converted by `toStorageError`. */
export const rethrowFault = (error: unknown): never => {
  throw toStorageError(error);
};
