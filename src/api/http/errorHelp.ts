import type { ErrorCode } from "../../engine/core/values/errors.ts";

/** The documentation of a code beside its meaning. Each text is whole sentences. */
export type ErrorHelp = {
  /** The common causes, the most frequent first. */
  causes: readonly string[];
  /** The action of the caller or the operator that helps. */
  remedy: string;
  /** Whether the same request may succeed later. "unsure": only after a look at what the first one did. */
  retry: "no" | "later" | "unsure";
};

/** The help for every code. `docs/errors.md` is made of it. */
export const errorHelp: Readonly<Record<ErrorCode, ErrorHelp>> = {
  invalid: {
    causes: [
      "A header, a parameter or a field of the body has a wrong name or value.",
      "The body is not the JSON that the request takes.",
      "The bytes are not valid HTTP.",
    ],
    remedy: "Correct the field that `error` names.",
    retry: "no",
  },
  unauthorized: {
    causes: [
      "The request has no token, or the token of another server.",
      "The token was replaced or revoked, or has expired.",
      "The signature of a call to a webhook source is missing or wrong.",
    ],
    remedy:
      "Send a valid token as `Authorization: Bearer <token>`. `waypost credentials` prints the token of an " +
      "account.",
    retry: "no",
  },
  forbidden: {
    causes: [
      "The token is read-only, lacks a verb, or is bound to other destinations.",
      "The account is disabled, or may not send to this host.",
      "A page of another site has sent the request.",
    ],
    remedy: "Use a token with the verb that `error` names, or ask the operator of the account.",
    retry: "no",
  },
  "not-found": {
    causes: [
      "The id or the name is misspelled, or belongs to another account.",
      "The object was deleted, or its retention has ended.",
      "The path does not exist.",
    ],
    remedy: "Compare the id with the list of these objects, and the path with the reference.",
    retry: "no",
  },
  "method-not-allowed": {
    causes: ["The path exists, but not with this method."],
    remedy: "Use a method of the response header `Allow`.",
    retry: "no",
  },
  "attempt-ended": {
    causes: [
      "The time in which the receiver had to report has passed, and the message is sent again.",
      "The message was cancelled, or an operator ended the attempt.",
      "The endpoint answered without `Svc-Ack: later`, so its response was the outcome.",
    ],
    remedy: "Stop the work, or keep its result: the next attempt repeats it. Extend the time while you work.",
    retry: "no",
  },
  "attempt-reported": {
    causes: ["Two workers have reported different outcomes of one attempt."],
    remedy: "Report each attempt once. The first report counts.",
    retry: "no",
  },
  "attempt-running": {
    causes: [
      "The outcome was reported before the endpoint had answered with status 202.",
      "A client reported before the server had stored that it holds what it pulled.",
    ],
    remedy: "An endpoint answers the delivery first. Then report again.",
    retry: "later",
  },
  conflict: {
    causes: [
      "An account with this name exists, or one with this id was deleted and its log is still kept.",
      "The signing keys were rotated a short time ago.",
    ],
    remedy: "Choose another name or id. After a rotation, wait until the time that `error` names.",
    retry: "no",
  },
  "request-timeout": {
    causes: ["The headers took more than 30 seconds to arrive, or the body more than 5 minutes."],
    remedy: "Send the request again over a faster connection, or send a smaller body.",
    retry: "later",
  },
  "limit-exceeded": {
    causes: [
      "A value, such as the number of retries or the delay, exceeds a limit of the account.",
      "The account has as many schedules, queues, URL groups or jobs as it may have.",
      "The request creates too many messages.",
    ],
    remedy:
      "Lower the value, delete what is not needed, or ask the operator to raise the limit that `error` " +
      "names.",
    retry: "no",
  },
  "step-refused": {
    causes: [
      "A step of a workflow run exceeds a limit, or lacks its id, name or type.",
      "The run that the step starts exists already.",
    ],
    remedy: "Correct the code of the workflow, then restart or resume the run.",
    retry: "no",
  },
  "too-large": {
    causes: ["The body exceeds the limit of the account, of the server (`--max-body`) or of the request."],
    remedy: "Send a smaller body, or a link to the data. The operator can raise the limit.",
    retry: "no",
  },
  "day-limit-exceeded": {
    causes: ["The account has published as many messages today as its plan allows."],
    remedy: "Wait until 00:00 UTC, or ask the operator to raise the limit. `RateLimit-Reset` has the time.",
    retry: "later",
  },
  "storage-quota-exceeded": {
    causes: [
      "Messages, dead letters, logs, schedules and URL groups of the account exceed its quota of bytes.",
    ],
    remedy: "Delete dead letters, wait until logs expire, or ask the operator to raise the quota.",
    retry: "later",
  },
  "too-many-requests": {
    causes: ["The account sends more requests in a second than its plan allows. Publishing does not count."],
    remedy: "Wait for the next second. Read lists with larger pages.",
    retry: "later",
  },
  "too-many-failures": {
    causes: [
      "A program keeps sending a wrong token or password.",
      "Requests without a valid token exceed `--refused-per-second` for their address.",
    ],
    remedy: "Correct the token of the program, then wait as long as `Retry-After` says.",
    retry: "later",
  },
  "headers-too-large": {
    causes: ["The request line and the headers together exceed 64 KiB."],
    remedy: "Send fewer or shorter headers, or move data into the body.",
    retry: "no",
  },
  internal: {
    causes: ["The server has a bug, or data in its store is damaged."],
    remedy:
      "The operator finds the cause in the log of the server, by the response header `X-Request-Id`. " +
      "A publish with a deduplication id can be repeated safely.",
    retry: "unsure",
  },
  unavailable: {
    causes: [
      "The database cannot be reached, or its disk has failed.",
      "The tables belong to another version of the server.",
      "A webhook source is paused, or its destination cannot be used.",
    ],
    remedy: "Repeat the request after `Retry-After`. If it persists, the operator checks the database.",
    retry: "later",
  },
  "outcome-unknown": {
    causes: [
      "The connection to the database was lost, or the database hung, while the request was being stored.",
    ],
    remedy:
      "Repeat a publish with the same deduplication id. For other requests, read whether the change was " +
      "made before you repeat it.",
    retry: "unsure",
  },
  "too-slow": {
    causes: ["A filter or a bulk action examines more than the server can read in time."],
    remedy:
      "Ask for fewer entries or use a narrower filter. Repeat a bulk action to continue it, or start a job " +
      "with `POST /v2/jobs`.",
    retry: "later",
  },
  "disk-low": {
    causes: ["The disk of the server is almost full. It keeps the rest for messages that it has accepted."],
    remedy: "The operator frees some space. Accepted messages are still delivered.",
    retry: "later",
  },
  busy: {
    causes: [
      "Many large bodies are arriving at once, or many long responses are being sent.",
      "The account has as many tails of the log open as it may have.",
      "A queue with very many messages is being deleted.",
    ],
    remedy: "Repeat the request after `Retry-After`, with fewer requests at once.",
    retry: "later",
  },
  stopping: {
    causes: [
      "The server is being stopped or restarted.",
      "A health check found that the store does not respond.",
    ],
    remedy: "Repeat the request after `Retry-After`. Another node or the restarted server responds.",
    retry: "later",
  },
};
