/** Unix time, or a length of time, in milliseconds. Names tell which: `dueAt`, `createdAt`; `timeout`, `delay`. */
export type Millis = number;
export type Bytes = Uint8Array;
export type AccountId = string;
export type MessageId = string;
/** Names in canonical form (`Content-Type`), in order, repeated where they came repeated. */
export type HeaderList = readonly (readonly [name: string, value: string])[];

/**
 * `msg`: a message. `log`, `dlq`: positions that sort by time. `scd`: a schedule. `src`: a source. `sig`: a signing key, or
 * another secret. `nod`: a node. `jwt`: a signature. `run`: a workflow run, in here; `wfr`: one whose name was not
 * chosen by its caller. `ntf`: a notification that nobody waited for yet. `tok`: a token. `aud`: an entry of the audit log.
 */
export type IdKind = "msg" | "log" | "dlq" | "scd" | "src" | "sig" | "nod" | "jwt" | "run" | "wfr" | "ntf" | "tok" | "aud";

export type Brand = "svc" | "upstash";
