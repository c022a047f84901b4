import { hash } from "node:crypto";
import { parse, stringify } from "node:querystring";
import type { WebhookCall } from "./call.ts";
import { headerOf, neededHeader, queryOf } from "./call.ts";
import { hasMac, isSame, whatToCheck } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { accepted, Rejected } from "./verdict.ts";

/** Twilio: https://www.twilio.com/docs/usage/security#validating-requests. The secret is the account's auth token. */
export const twilioSchema = stored("twilio", {});

export const twilio: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    const fields = signedFields(call);
    const text = textOf(fields);
    const keys = secretsOf(secret);
    const isSigned = urlsOf(call.url).some((url) =>
      hasMac({ header, given, keys, signed: [url, text], algorithm: "sha1", encoding: "base64" }),
    );
    if (!isSigned) throw new Rejected(`${header}: the signature does not match; ${whatToCheck}, and that this server knows its public URL`);
    return accepted(headerOf(call, "I-Twilio-Idempotency-Token") ?? messageOf(fields.size === 0 ? queryOf(call) : fields));
  },
};

const header = "X-Twilio-Signature";
const hashParameter = "bodySHA256";
/** Twilio sends some thirty, and ten for each medium. */
const mostFields = 1000;
/** Of a form, which is hashed for each form of the URL and each secret. */
const mostBytes = 1024 * 1024;

/**
 * The form fields that are signed along with the URL. Any other body is signed by its hash, which the URL then has as a parameter;
 * a body that is signed in neither way is rejected.
 */
function signedFields(call: WebhookCall): URLSearchParams {
  const expected = queryOf(call).get(hashParameter);
  if (expected !== null) {
    if (isSame(hash("sha256", call.body, "hex"), expected.toLowerCase())) return new URLSearchParams();
    throw new Rejected(`${hashParameter}: is not the hash of the body, which was changed on its way`);
  }
  if (call.body.length === 0) return new URLSearchParams();
  if (!/^application\/x-www-form-urlencoded *(;|$)/i.test(headerOf(call, "Content-Type") ?? ""))
    throw new Rejected(`Content-Type: not application/x-www-form-urlencoded, and the URL has no ${hashParameter}: this body is not signed`);
  return formOf(call);
}

function formOf(call: WebhookCall): URLSearchParams {
  if (call.body.length > mostBytes) throw new Rejected(`the form: ${call.body.length} bytes, of which the limit is ${mostBytes}`);
  let separators = 0;
  for (const byte of call.body) if (byte === ampersand) separators++;
  if (separators >= mostFields) throw new Rejected(`the form: ${separators + 1} fields, of which the limit is ${mostFields}`);
  return new URLSearchParams(new TextDecoder().decode(call.body));
}

const ampersand = 0x26;

/** Names and values, sorted by name; of a name with several values each different one, sorted. */
function textOf(fields: URLSearchParams): string {
  const valuesOf = new Map<string, Set<string>>();
  for (const [name, value] of fields) {
    const values = valuesOf.get(name);
    if (values) values.add(value);
    else valuesOf.set(name, new Set([value]));
  }
  const sorted = [...valuesOf].toSorted(([one], [other]) => byCodeUnits(one, other));
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

/** The forms of the URL that Twilio may have signed: with and without the port, and the query as it is or encoded as it once was. */
function urlsOf(url: string): string[] {
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

/** A message is told of again whenever its status changes: each status is an event of its own. */
function messageOf(fields: URLSearchParams): string | null {
  const id = fields.get("MessageSid");
  const status = fields.get("MessageStatus") ?? fields.get("SmsStatus");
  return id === null || status === null ? id : `${id}:${status}`;
}
