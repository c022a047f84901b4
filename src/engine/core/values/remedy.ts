/**
 * A remedy for a refusal, as a fact. The API names the command or the request with which the caller or the
 * operator carries it out: see `api/http/remedies.ts`.
 */
export type Remedy =
  /** `isLast`: the text names other remedies, and this is the last of the list. */
  | { remedy: "raise-limit"; account: string; plan: string; limit: string; isLast?: boolean }
  | { remedy: "raise-storage-quota"; account: string }
  | { remedy: "raise-server-queues" }
  | { remedy: "raise-budget" }
  | { remedy: "create-token" }
  | { remedy: "enable-account"; account: string }
  | { remedy: "list-accounts" }
  | { remedy: "show-account"; account: string }
  | { remedy: "allow-host" }
  | { remedy: "create-group"; group: string }
  | { remedy: "repair-group"; group: string }
  | { remedy: "retry-dead-letter"; dlqId: string }
  | { remedy: "resume-run"; dlqId: string }
  /** `after`: when the signing keys may rotate again, in ISO 8601. */
  | { remedy: "rotate-later"; after: string };
