import { refusedAddress } from "../../engine/core/explain/hostConditions.ts";
import type { DestinationResponse } from "../../engine/core/model/attempt.ts";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import { forbidsRetry } from "../../engine/core/sending/retry.ts";

/** A response as the log and dead letters keep it. */
type FailedResponse = Pick<DestinationResponse, "status" | "error" | "headers" | "body">;

/** The message that failed. `ofRun`: it calls the endpoint of a workflow run. */
type About = { redaction: Redaction | null; ofRun: boolean };

/** The parts of a failure that are compared. `body` is the beginning of the body as text. */
type Seen = { error: string; status: number | null; body: string; forbidsRetry: boolean; ofRun: boolean };

/**
 * A known failure. It is recognized if all given parts match. `error` is an error of this server, `body` a
 * string of a destination. `shown` is the text that documents show for it; if absent, they show `statuses`.
 */
type KnownFailure = {
  shown?: string;
  error?: RegExp;
  body?: RegExp;
  statuses?: readonly number[];
  ofRun?: true;
  only?: (seen: Seen) => boolean;
  explanation: string;
};

/** Failures for which this server gives the reason. */
const serverErrors: readonly KnownFailure[] = [
  {
    shown: "ended by operator",
    error: /^ended by operator$/,
    explanation:
      "A person ended this attempt while it was in flight. The message is sent again, and the attempt uses " +
      "up no retry. The audit log names the person. The destination may have received the message.",
  },
  {
    shown: "address … is not public",
    error: refusedAddress,
    explanation:
      "The server does not call private and local addresses, so that messages cannot reach its own " +
      "network. Use a public URL, or have the operator allow the address or the name with " +
      "WAYPOST_EGRESS_ALLOW.",
  },
  {
    shown: "name not found: the name server did not respond",
    error: /^name not found: the name server/,
    explanation:
      "The name server did not respond, so the address of the host is unknown. This often passes by " +
      "itself. If it stays, the operator should check the DNS settings of the server.",
  },
  {
    shown: "name not found",
    error: /^name not found/,
    explanation:
      "The host of the URL has no address. Check the spelling of the host, and that it has a DNS " +
      "record.",
  },
  {
    shown: "TLS problem: the destination does not speak TLS on this port (…)",
    error: /^TLS problem: the destination does not speak TLS/,
    explanation:
      "The URL begins with https://, but the destination speaks plain HTTP on this port. Use http://, " +
      "or the port that has TLS.",
  },
  {
    shown: "TLS problem: CERT_HAS_EXPIRED",
    error: /^TLS problem: CERT_HAS_EXPIRED/,
    explanation: "The certificate of the destination has expired. Renew it there.",
  },
  {
    shown: "TLS problem: ERR_TLS_CERT_ALTNAME_INVALID",
    error: /^TLS problem: .*(ALTNAME|HOSTNAME_MISMATCH)/,
    explanation: "The certificate of the destination is for another host. Use the host that it names.",
  },
  {
    shown: "TLS problem: UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    error: /^TLS problem: .*(SELF_SIGNED|UNABLE_TO_|ISSUER)/,
    explanation:
      "The certificate of the destination is not from a known authority, or the destination does not " +
      "send the intermediate certificates. Install the complete chain there, or have the operator name the " +
      "authority with WAYPOST_EGRESS_CA.",
  },
  {
    shown: "the host … is not allowed for this account",
    error: /^the host .* is not allowed for this account/,
    explanation:
      "The operator has limited the hosts that this account may send to. Have the operator add the host " +
      "(waypost account hosts), and retry the message.",
  },
  {
    shown: "the proxy …",
    error: /^(the proxy |connecting through the proxy)/,
    explanation:
      "Deliveries leave this server through a proxy, which did not open a connection. The destination " +
      "received nothing. The operator should check the proxy (waypost doctor egress).",
  },
  {
    shown: "TLS problem: …",
    error: /^TLS problem/,
    explanation:
      "No secure connection was possible. Check the certificate and TLS settings of the destination.",
  },
  {
    shown: "connection refused",
    error: /^connection refused/,
    explanation:
      "No program listens on this host and port. Check that the application runs, and the port. In a " +
      "container, localhost is the container itself.",
  },
  {
    shown: "connecting timed out",
    error: /^(connecting timed out|address unreachable)/,
    explanation: "The host does not respond. Check its address, its firewall, and the network between.",
  },
  {
    shown: "timed out: the holder of the attempt …",
    error: /^timed out: the holder/,
    explanation:
      "A receiver or a client held the attempt, and no report came in time. The work may have been done. " +
      "Check the worker, extend the time while it works, or give it more time: Svc-Ack-Timeout, or the " +
      "lease of the pull.",
  },
  {
    shown: "no puller received the attempt",
    error: /^no puller received/,
    explanation:
      "The connection of a client that pulled ended before it had its response. The attempt uses up no " +
      "retry. Another pull gets the message: at once, and later after up to a minute if that is repeated.",
  },
  {
    shown: "the client that pulled the attempt gave it back",
    error: /^the client that pulled the attempt gave it back/,
    explanation:
      "The client had not begun the work, for example because it was stopped. The attempt uses up no " +
      "retry. Another pull gets the message: at once, and later after up to a minute if that is repeated.",
  },
  {
    shown: "the server stopped during the attempt",
    error: /^the server stopped during/,
    explanation:
      "The server, or another one, sends the message again. The attempt uses up no retry. The " +
      "receiver may get the message twice.",
  },
  {
    shown: "timed out after …",
    error: /^timed out after/,
    ofRun: true,
    explanation:
      "The endpoint did not respond in time. The step may still run and post its result. Make the step " +
      "shorter, raise the timeout of the run, or let the server make the slow request (context.call).",
  },
  {
    shown: "timed out after …",
    error: /^timed out after/,
    explanation:
      "The destination did not respond in time. It may still have done its work, so a retry may do it " +
      "twice. Raise Svc-Timeout, or respond first and work afterwards.",
  },
  {
    shown: "connection lost before the response was complete",
    error: /^connection lost/,
    explanation:
      "The destination closed the connection before its response was complete. It may have crashed or " +
      "been restarted, and it may have done its work.",
  },
  {
    shown: "detected a non-workflow destination for trigger/invoke …",
    error: /non-workflow destination/,
    explanation:
      "The URL responded, but not as a workflow. Check the path, and that the endpoint serves the " +
      "workflow with its client. A login page or a proxy in front of it also responds like this.",
  },
  {
    shown: "trigger rest api is only usable with …",
    error: /^trigger rest api is only usable/,
    explanation:
      "The client at the endpoint is too old to be started by /v2/trigger. Update it, or start the run " +
      "with its own trigger function.",
  },
  {
    shown: "step …: history has …, the endpoint ran …",
    error: /does not fit the history|: history has .*, the endpoint ran/,
    explanation:
      "The code of the workflow has changed since the run began, so its steps no longer match the " +
      "history. Resume works if the code changed only after the failed step; otherwise restart the run.",
  },
  {
    shown: "the response is not valid HTTP: …",
    error: /not valid HTTP/,
    explanation:
      "The destination sent a malformed response, such as one with two different lengths. No part of it " +
      "is used, because a proxy might read the same bytes in another way. Correct the destination.",
  },
  {
    shown: "could not be stored: …",
    error: /^could not be stored/,
    explanation:
      "The database refused the changes of the message repeatedly. The message was given up, so that it " +
      "does not block others, and its callbacks were not sent. The log of the server has details.",
  },
];

/** Failures that a destination reports. The texts are those of the published clients. */
const responses: readonly KnownFailure[] = [
  {
    shown: "Failed to authenticate Workflow request",
    body: /Failed to authenticate Workflow request/,
    explanation:
      "The workflow returned before its first step, which the client takes for a failed authentication. " +
      "If that was not intended, let no branch before a step depend on values that change between " +
      "calls, such as the time, random numbers or a database.",
  },
  {
    shown: "Signature header is missing",
    body: /Signature[`'"]? header is (missing|not passed)/i,
    explanation:
      "The receiver found no signature. A proxy may have removed the header, the message may hide it with " +
      "Hide-Headers, or the receiver reads the header with the other prefix.",
  },
  {
    shown: "timestamp check failed",
    body: /timestamp check failed/,
    explanation:
      "The receiver takes the signature for expired or not yet valid. Compare the clocks of both " +
      "machines.",
  },
  {
    shown: "body hash does not match",
    body: /body hash does not match|invalid subject: /,
    explanation:
      "The receiver got another body or URL than was signed. A proxy or a body parser changed the body, " +
      "or the receiver verifies with a URL that is not the one of the message.",
  },
  {
    shown: "invalid signature",
    body: new RegExp(
      [
        "signature verification failed",
        "invalid signature",
        "signature in .{0,30} header is not valid",
        "no signing keys available",
        "failed to verify that the workflow request comes from",
      ].join("|"),
      "i",
    ),
    explanation:
      "The receiver refused the signature. It must use the signing keys of this account: GET /v2/keys " +
      "shows them. After a rotation, it needs the new ones.",
  },
  {
    shown: "… workflow run steps. This can happen …",
    body: /workflow run steps\. This can happen/,
    explanation:
      "The endpoint could not read the history of its run from this server. Check that QSTASH_URL and " +
      "QSTASH_TOKEN of the endpoint are those of this server and account.",
  },
  {
    shown: "client token is not set",
    body: /client token is not set/,
    explanation: "The endpoint has no token for this server. Set QSTASH_TOKEN there.",
  },
  {
    shown: "Unsupported content type",
    body: /Unsupported content.type/i,
    explanation:
      "The endpoint does not accept the content type of the message. Publish with the Content-Type that " +
      "it expects, such as application/json.",
  },
  {
    statuses: [415],
    explanation:
      "The destination does not accept the content type of the message. Publish with the Content-Type " +
      "that it expects.",
  },
  {
    shown: "Svc-NonRetryable-Error: true",
    only: (seen) => seen.forbidsRetry,
    explanation: "The destination reported that a retry would be futile, so there was none.",
  },
  {
    statuses: [301, 302, 303, 307, 308],
    explanation:
      "The destination redirects to another URL. Redirects are not followed, because the signature is " +
      "for this URL. Publish to the new URL.",
  },
  {
    statuses: [401, 403],
    explanation:
      "The destination requires a login or refuses the sender. Send its credentials with " +
      "Svc-Forward-Authorization, or exempt the path from its protection.",
  },
  {
    statuses: [404, 410],
    explanation: "The destination has nothing at this path. Check the path of the URL.",
  },
  {
    statuses: [405],
    explanation: "The destination does not accept this HTTP method at this path. Set Svc-Method.",
  },
  { statuses: [413], explanation: "The body is larger than the destination accepts." },
  {
    statuses: [429],
    explanation:
      "The destination limits its requests. A flow-control key with a rate keeps the messages within " +
      "that limit.",
  },
  {
    statuses: [408, 504, 524],
    ofRun: true,
    explanation:
      "A proxy in front of the endpoint stopped waiting. The step may still run and post its result. " +
      "Raise the timeout of the proxy, make the step shorter, or let the server make the slow request " +
      "(context.call).",
  },
  {
    statuses: [408, 504, 524],
    explanation:
      "A proxy in front of the destination stopped waiting. The destination may still have done its " +
      "work, so a retry may do it twice. Raise the timeout of the proxy, or respond first and work " +
      "afterwards.",
  },
  {
    statuses: [502, 503],
    explanation:
      "A proxy in front of the destination cannot reach the application, or the application is " +
      "overloaded or starting. This often passes by itself.",
  },
];

/** A known failure as documents show it: by an error of the server, a part of a response, or statuses. */
type ShownFailure = { shown: string; ofRun: boolean; explanation: string };

const show = ({ shown, statuses, ofRun, explanation }: KnownFailure): ShownFailure => ({
  shown: shown ?? (statuses ?? []).join(", "),
  ofRun: ofRun === true,
  explanation,
});

/** Returns all known failures for documents: errors of the server, and responses of destinations. */
export const listKnownFailures = (): { errors: ShownFailure[]; responses: ShownFailure[] } => ({
  errors: serverErrors.map(show),
  responses: responses.map(show),
});

/** The beginning of a body in which known texts are searched, in bytes. */
const maxSearched = 16 * 1024;

/**
 * Returns what a failure means and what to do about it, if it is a known one. Returns null for an unknown
 * failure and for a success. A hidden body is not searched.
 */
export function explainFailure(response: FailedResponse, { redaction, ofRun }: About): string | null {
  const { status, error } = response;
  if (error === null && (status === null || (status >= 200 && status < 300))) return null;
  const seen: Seen = {
    status,
    ofRun,
    error: error ?? "",
    body: redaction?.body ? "" : readText(response),
    forbidsRetry: forbidsRetry(response),
  };
  const rows = error === null ? responses : serverErrors;
  return rows.find((row) => isRecognized(row, seen))?.explanation ?? null;
}

const readText = ({ body }: FailedResponse): string =>
  new TextDecoder().decode(body.subarray(0, maxSearched));

const isRecognized = ({ error, body, statuses, ofRun, only }: KnownFailure, seen: Seen): boolean =>
  (error === undefined || error.test(seen.error)) &&
  (body === undefined || body.test(seen.body)) &&
  (statuses === undefined || (seen.status !== null && statuses.includes(seen.status))) &&
  (!ofRun || seen.ofRun) &&
  (only === undefined || only(seen));
