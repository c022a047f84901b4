/**
 * A Unix time or a duration, in milliseconds. Names that end in `At`, such as `dueAt`, are times. Names such
 * as `timeout` and `delay` are durations.
 */
export type Millis = number;
/** Bytes of a body. */
export type Bytes = Uint8Array;
/** The id of an account. */
export type AccountId = string;
/** The account in rows about the server as a whole. No account has this id. */
export const serverAccount: AccountId = "";
/** The id of a message. */
export type MessageId = string;
/**
 * Headers with names in canonical form (`Content-Type`), in order. A header that occurs twice is listed
 * twice.
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
 * - `wfr`: a run id that the server made, because the caller gave none.
 * - `ntf`: an event that arrived before a step waited for it.
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
  | "aud"
  | "job";

/** The prefix of headers and signatures: `Svc` or `Upstash`. */
export type Brand = "svc" | "upstash";

/** The id of a running server. */
export type NodeId = string;

/** An empty body. */
export const noBytes: Bytes = new Uint8Array(0);
