import { hash } from "node:crypto";
import { parse, stringify } from "node:querystring";
import type { WebhookCall } from "./call.ts";
import { readHeader, requireHeader, parseCallQuery } from "./call.ts";
import { hasValidSignature, isSameText, whatToCheck } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCall, CallRejection } from "./verificationResult.ts";

/**
 * Twilio: https://www.twilio.com/docs/usage/security#validating-requests. The secret is the account's auth
 * token.
 */
export const twilioSchema = makeSchemeSchema("twilio", {});

/** Verifies calls of Twilio. */
export const twilio: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const signatures = [requireHeader(call, header)];
    const fields = signedFields(call);
    const text = formatFields(fields);
    const keys = toSecretList(secret);
    const isSigned = listUrlForms(call.url).some((url) =>
      hasValidSignature({
        header,
        signatures,
        keys,
        signed: [url, text],
        algorithm: "sha1",
        encoding: "base64",
      }),
    );
    if (!isSigned)
      throw new CallRejection(
        `${header}: the signature does not match; ${whatToCheck}. Check also the public URL of this server`,
      );
    return acceptCall(
      readHeader(call, "I-Twilio-Idempotency-Token") ??
        readMessageId(fields.size === 0 ? parseCallQuery(call) : fields),
    );
  },
};

const header = "X-Twilio-Signature";
const hashParameter = "bodySHA256";
/** The maximum number of fields of a form. Twilio sends about 30, and 10 for each medium. */
const maxFields = 1000;
/** The maximum size of a form. It is hashed for each form of the URL and each secret. */
const maxBytes = 1024 * 1024;

/**
 * Returns the form fields that are signed with the URL. Any other body is signed by its hash, which is a
 * parameter of the URL. A body that is signed in neither way is rejected.
 */
function signedFields(call: WebhookCall): URLSearchParams {
  const expected = parseCallQuery(call).get(hashParameter);
  if (expected !== null) {
    if (isSameText(hash("sha256", call.body, "hex"), expected.toLowerCase())) return new URLSearchParams();
    throw new CallRejection(
      `${hashParameter}: is not the hash of the body; check that no proxy changes the body`,
    );
  }
  if (call.body.length === 0) return new URLSearchParams();
  if (!/^application\/x-www-form-urlencoded *(;|$)/i.test(readHeader(call, "Content-Type") ?? ""))
    throw new CallRejection(
      `Content-Type: is not application/x-www-form-urlencoded, and the URL has no ${hashParameter}, ` +
        "so this body is not signed",
    );
  return parseForm(call);
}

function parseForm(call: WebhookCall): URLSearchParams {
  if (call.body.length > maxBytes)
    throw new CallRejection(`the form: ${call.body.length} bytes exceed the limit of ${maxBytes}`);
  let separators = 0;
  for (const byte of call.body) if (byte === ampersand) separators++;
  if (separators >= maxFields)
    throw new CallRejection(`the form: ${separators + 1} fields exceed the limit of ${maxFields}`);
  return new URLSearchParams(new TextDecoder().decode(call.body));
}

const ampersand = 0x26;

/** Returns names and values, sorted by name. Each different value of a name occurs once, sorted. */
function formatFields(fields: URLSearchParams): string {
  const valuesByName = new Map<string, Set<string>>();
  for (const [name, value] of fields) {
    const values = valuesByName.get(name);
    if (values) values.add(value);
    else valuesByName.set(name, new Set([value]));
  }
  const sorted = [...valuesByName].toSorted(([one], [other]) => byCodeUnits(one, other));
  return sorted
    .map(([name, values]) =>
      [...values]
        .toSorted(byCodeUnits)
        .map((value) => name + value)
        .join(""),
    )
    .join("");
}

const byCodeUnits = (one: string, other: string): number => (one < other ? -1 : Number(one > other));

/**
 * Returns the forms of the URL that Twilio may have signed: with and without the port, and with the query as
 * sent or re-encoded.
 */
function listUrlForms(url: string): string[] {
  const parsed = URL.parse(url);
  if (!parsed) return [url];
  const { protocol, host, port, pathname, search } = parsed;
  const standard = protocol === "https:" ? ":443" : ":80";
  const query = parse(search.slice(1));
  const queries = search === "" ? [""] : [search, `?${stringify(query)}`];
  const hosts = port === "" ? [host, host + standard] : [host.slice(0, -port.length - 1), host];
  const variants = hosts.flatMap((name) => queries.map((text) => `${protocol}//${name}${pathname}${text}`));
  return [...new Set([url, ...variants])];
}

/**
 * Returns the event id of a message. Twilio reports a message at each change of its status, and each status
 * is a separate event.
 */
function readMessageId(fields: URLSearchParams): string | null {
  const id = fields.get("MessageSid");
  const status = fields.get("MessageStatus") ?? fields.get("SmsStatus");
  return id === null || status === null ? id : `${id}:${status}`;
}
