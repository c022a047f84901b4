import { brandNames } from "../../core/values/brand.ts";
import { deliveryHeaders, standardHeaders } from "../../core/values/deliveryHeaders.ts";

type Json = Record<string, unknown>;

const header = (name: string, required: boolean, description: string): Json => ({
  name,
  in: "header",
  required,
  description,
  schema: { type: "string" },
});

const prefixes = Object.values(brandNames).map(({ prefix }) => prefix);

/** A delivery has the headers of the brand that its message was published under, so no name is always there. */
const parameters = (): Json[] => [
  ...prefixes.flatMap((prefix) => Object.values(deliveryHeaders).map(({ name, about }) => header(`${prefix}-${name}`, false, about))),
  ...Object.entries(standardHeaders).map(([name, about]) => header(name, false, `${about} If Standard Webhooks are enabled.`)),
  header(
    "User-Agent",
    true,
    `${Object.values(brandNames)
      .map(({ userAgent }) => userAgent)
      .join(" or ")}, unless the message has another one.`,
  ),
];

const delay = {
  description: "When to retry: seconds, a duration such as 6m5s, or an HTTP date; at most a day.",
  schema: { type: "string" },
};

const responses = (): Json => ({
  "2XX": { description: "Delivered." },
  489: {
    description: "Failed. Without further retries if one of these headers is true.",
    headers: Object.fromEntries(prefixes.map((prefix) => [`${prefix}-NonRetryable-Error`, { schema: { type: "string", enum: ["true"] } }])),
  },
  default: {
    description: "Failed. Retried as long as retries are left. Redirects are not followed.",
    headers: {
      "Retry-After": delay,
      "X-RateLimit-Reset": delay,
      "X-RateLimit-Reset-Requests": delay,
      "X-RateLimit-Reset-Tokens": delay,
    },
  },
});

const webhook = (operationId: string, summary: string, description: string, requestBody: Json): Json => ({
  post: { operationId, summary, description, security: [], parameters: parameters(), requestBody, responses: responses() },
});

const json = (name: string): Json => ({
  required: true,
  content: { "application/json": { schema: { $ref: `#/components/schemas/${name}` } } },
});

/** Returns what destinations receive: the `webhooks` of the API document. */
export const webhooks = (): Json => ({
  delivery: webhook(
    "receiveDelivery",
    "A message is delivered",
    "The message, sent to its destination with the method, headers and body that it was published with. It can arrive more than once: every time with the same message id.",
    { required: false, description: "The body of the message, byte for byte.", content: { "*/*": { schema: {} } } },
  ),
  callback: webhook(
    "receiveCallback",
    "The result of an attempt",
    "Sent to the callback URL of a message after every attempt. It is a message itself, with its own id.",
    json("Callback"),
  ),
  failureCallback: webhook(
    "receiveFailureCallback",
    "A message has failed",
    "Sent to the failure callback URL of a message when its last attempt has failed. It is a message itself, with its own id.",
    json("FailureCallback"),
  ),
});
