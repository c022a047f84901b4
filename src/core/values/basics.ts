/**
 * A Unix time or a duration, in milliseconds. The name tells which: `dueAt` and `createdAt` are times,
 * `timeout` and `delay` are durations.
 */
export type Millis = number;
/** Bytes of a body. */
export type Bytes = Uint8Array;
/** The id of an account. */
export type AccountId = string;
/** The id of a message. */
export type MessageId = string;
/**
 * Headers with names in canonical form (`Content-Type`), in order. A repeated header is listed repeatedly.
 */
export type HeaderList = readonly (readonly [name: string, value: string])[];

/**
 * The prefix of an id.
 * - `msg`: a message.
 * - `log`, `dlq`: positions that sort by time.
 * - `scd`: a schedule.
 * - `src`: a source.
 * - `sig`: a signing key, or another secret.
 * - `nod`: a node.
 * - `jwt`: a signature.
 * - `run`: the internal key of a workflow run.
 * - `wfr`: a run id that its caller did not choose.
 * - `ntf`: a notification that no step has waited for yet.
 * - `tok`: a token.
 * - `aud`: an entry of the audit log.
 */
export type IdKind =
  | "msg"
  | "log"
  | "dlq"
  | "scd"
  | "src"
  | "sig"
  | "nod"
  | "jwt"
  | "run"
  | "wfr"
  | "ntf"
  | "tok"
  | "aud";

/** The prefix of headers and signatures: `Svc` or `Upstash`. */
export type Brand = "svc" | "upstash";
