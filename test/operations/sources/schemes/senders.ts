import type { Verification, WebhookCall } from "../../../../src/operations/sources/schemes/verification.ts";

/**
 * A call of each sender. The `published` calls are the examples of the senders' own documentation. The
 * signatures of the others were computed with Python's hmac module and with the OpenSSL command line.
 */
export type Sender = {
  name: string;
  verification: Verification;
  call: WebhookCall;
  eventId: string | null;
  /** The topic, if the event is known by its signature. */
  topic?: string;
  /** The header with the signature. */
  header: string;
  /** How far the time may be off in either direction, in seconds. Null if the sender signs no time. */
  tolerance: number | null;
};

type Given = {
  url?: string;
  method?: string;
  headers: Record<string, string>;
  body: string | Uint8Array;
  now?: number;
};

/** Returns a call to a source, with its headers as a flat list of names and values. */
export const makeCall = ({
  url = "https://waypost.example/v2/in/s3cr3t",
  method = "POST",
  headers,
  body,
  now = 0,
}: Given): WebhookCall => ({
  method,
  url,
  headers: Object.entries(headers).flat(),
  now,
  body: typeof body === "string" ? new TextEncoder().encode(body) : body,
});

/** Returns the same call with one header set or removed. */
export function withHeader(call: WebhookCall, name: string, value: string | null): WebhookCall {
  const kept = call.headers.flatMap((one, at) =>
    at % 2 === 0 && one.toLowerCase() !== name.toLowerCase() ? [one, call.headers[at + 1] ?? ""] : [],
  );
  return { ...call, headers: value === null ? kept : [...kept, name, value] };
}

/** Returns the value of a header of a call, whose name must have the same case, or an empty text. */
export const getHeader = (call: WebhookCall, name: string): string =>
  call.headers[call.headers.indexOf(name) + 1] ?? "";

const form = { "Content-Type": "application/x-www-form-urlencoded" };

const stripe: Sender = {
  name: "stripe",
  verification: { scheme: "stripe", secret: "whsec_test_secret" },
  call: makeCall({
    headers: {
      "Stripe-Signature":
        "t=1492774577,v1=a4d8cf7bf8f4f9daf3d0d4a5905396c32f725d47d08d91a0998fa1fefe70c66a,v0=6ffbb59b",
    },
    body: '{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","type":"charge.succeeded"}',
    now: 1_492_774_577_000,
  }),
  eventId: "evt_1NG8Du2eZvKYlo2CUI79vXWy",
  header: "Stripe-Signature",
  tolerance: 300,
};

const github: Sender = {
  name: "github, published",
  verification: { scheme: "github", secret: "It's a Secret to Everybody" },
  call: makeCall({
    headers: {
      "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
      "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
      "X-GitHub-Event": "ping",
    },
    body: "Hello, World!",
  }),
  eventId: null,
  topic: "ping",
  header: "X-Hub-Signature-256",
  tolerance: null,
};

/** The signing secret in the documentation of Slack. */
export const slackSecret = "8f742231b10e8888abcd99yyyzzz85a5";
/** The time of that example, in Unix seconds. */
export const slackTime = 1_531_420_618;
/** Returns a call from Slack at the time of the example. */
export const slackCall = (body: string, signature: string): WebhookCall =>
  makeCall({
    headers: { "X-Slack-Request-Timestamp": String(slackTime), "X-Slack-Signature": signature },
    body,
    now: slackTime * 1000,
  });

const slack: Sender = {
  name: "slack, published",
  verification: { scheme: "slack", secret: slackSecret },
  call: slackCall(
    "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow" +
      "&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner" +
      "&command=%2Fwebhook-collect&text=" +
      "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F" +
      "96rGlfmibIGlgcZRskXaIFfN" +
      "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
  ),
  eventId: null,
  header: "X-Slack-Signature",
  tolerance: 300,
};

const shopify: Sender = {
  name: "shopify",
  verification: { scheme: "shopify", secret: "hush" },
  call: makeCall({
    headers: {
      "X-Shopify-Hmac-Sha256": "XEYCPSbGtdhP6PZ+r0hjL3ujEHWaBLaDBADxMdhcFMM=",
      "X-Shopify-Webhook-Id": "b54557e4",
    },
    body: '{"id":820982911946154508,"note":"café"}',
  }),
  eventId: null,
  topic: "",
  header: "X-Shopify-Hmac-Sha256",
  tolerance: null,
};

const twilio: Sender = {
  name: "twilio, published",
  verification: { scheme: "twilio", secret: "12345" },
  call: makeCall({
    url: "https://mycompany.com/myapp.php?foo=1&bar=2",
    headers: {
      ...form,
      "X-Twilio-Signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
      "I-Twilio-Idempotency-Token": "a1b2",
    },
    body: "To=%2B18005551212&CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309",
  }),
  eventId: "a1b2",
  header: "X-Twilio-Signature",
  tolerance: null,
};

const twilioJson: Sender = {
  name: "twilio, a body that is not a form",
  verification: { scheme: "twilio", secret: "12345" },
  call: makeCall({
    url:
      "https://mycompany.com/myapp.php" +
      "?bodySHA256=e4ba61f28c2f5934bdbabfdf4d4d76c8761abd17e9b81590c1857a7e81bfdcb2",
    headers: { "Content-Type": "application/json", "X-Twilio-Signature": "xf9FBEFtggViTaOlgnuwa3shs9g=" },
    body: '{"specversion":"1.0","type":"com.twilio.messaging.message.sent"}',
  }),
  eventId: null,
  header: "X-Twilio-Signature",
  tolerance: null,
};

const linear: Sender = {
  name: "linear",
  verification: { scheme: "linear", secret: "lin_wh_secret" },
  call: makeCall({
    headers: {
      "Linear-Signature": "7f1b01e2282c7612f4ba310248a964ea16327e81ef037d2f5a0080bf80b4e551",
      "Linear-Delivery": "234d1a4e-b617-4388-90fe-adc3633d6b72",
    },
    body: '{"action":"create","type":"Issue","webhookTimestamp":1676056940508}',
    now: 1_676_056_940_508,
  }),
  eventId: null,
  topic: "",
  header: "Linear-Signature",
  tolerance: 60,
};

const standardCall = (brand: string, signature: string): WebhookCall =>
  makeCall({
    headers: {
      [`${brand}-id`]: "msg_p5jXN8AQM9LWM0D4loKWxJek",
      [`${brand}-timestamp`]: "1614265330",
      [`${brand}-signature`]: signature,
    },
    body: '{"test": 2432232314}',
    now: 1_614_265_330_000,
  });

const standard: Sender = {
  name: "standard, published",
  verification: { scheme: "standard", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" },
  call: standardCall("webhook", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
  eventId: "msg_p5jXN8AQM9LWM0D4loKWxJek",
  header: "webhook-signature",
  tolerance: 300,
};

const svix: Sender = {
  ...standard,
  name: "standard, under the names of Svix",
  call: standardCall("svix", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
  header: "svix-signature",
};

/** The key pair is that of the first test of RFC 8032. */
const asymmetric: Sender = {
  ...standard,
  name: "standard, with a public key",
  verification: { scheme: "standard", secret: "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=" },
  call: standardCall(
    "webhook",
    "v1a,fldxM4gAKugP6nnt1hdz3sgGfZ6d99nzrMFnZOELIxbzEHoVmAb2ADpkJK7zgPePmPsle0zV9jSeGlHFG2NVAw==",
  ),
};

/** A JSON body that is not valid UTF-8. */
export const notUtf8 = Uint8Array.from([
  ...new TextEncoder().encode('{"test":"ok '),
  0xff,
  ...new TextEncoder().encode('"}'),
]);

const hmacPlain: Sender = {
  name: "hmac, of the body",
  verification: {
    scheme: "hmac",
    secret: "key",
    header: "X-Signature",
    algorithm: "sha512",
    encoding: "base64",
    prefix: "",
    signed: "{body}",
  },
  call: makeCall({
    headers: {
      "X-Signature":
        "CEuX4wIAKurOCDxg+YAMIGFRR/CpVyhZRXGUdPHlZuM9lfRa7KNcH0cmMZ3x6TA0ntJXVbaoJDZW60BJiq3cxA==",
    },
    body: notUtf8,
  }),
  eventId: null,
  header: "X-Signature",
  tolerance: null,
};

const hmacTimed: Sender = {
  name: "hmac, of a time and the body",
  verification: {
    scheme: "hmac",
    secret: "key",
    header: "X-Signature",
    algorithm: "sha256",
    encoding: "hex",
    prefix: "s=",
    timestamp: { header: "X-Time", unit: "milliseconds", toleranceSeconds: 30 },
    signed: "v1:{timestamp}:{body}:end",
    eventIdHeader: "X-Event",
  },
  call: makeCall({
    headers: {
      "X-Signature": "s=86db6c91a8c0a43fb886705b51f69d2e5accf648fd41580879578915feb76acf",
      "X-Time": "1700000000123",
      "X-Event": "e-1",
    },
    body: notUtf8,
    now: 1_700_000_000_123,
  }),
  eventId: "e-1",
  header: "X-Signature",
  tolerance: 30,
};

/** All senders whose calls tests verify. */
export const senders: readonly Sender[] = [
  ...[stripe, github, slack, shopify, twilio, twilioJson, linear],
  ...[standard, svix, asymmetric, hmacPlain, hmacTimed],
];

/** Returns the sender with this name, which must exist. */
export const findSender = (name: string): Sender => {
  const found = senders.find((sender) => sender.name === name);
  if (!found) throw new Error(`no sender ${name}`);
  return found;
};
