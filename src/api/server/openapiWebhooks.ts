import { brandNames } from "../../engine/core/values/brand.ts";
import { deliveryHeaders, standardHeaders } from "../../engine/core/values/deliveryHeaders.ts";

type Json = Record<string, unknown>;

const header = (name: string, required: boolean, description: string): Json => ({
  name,
  in: "header",
  required,
  description,
  schema: { type: "string" },
});

const prefixes = Object.values(brandNames).map(({ prefix }) => prefix);

/**
 * Returns the headers of a delivery. Their brand is that of the publish request, so no branded header is
 * always present.
 */
const parameters = (): Json[] => [
  ...prefixes.flatMap((prefix) =>
    Object.values(deliveryHeaders).map(({ name, about }) => header(`${prefix}-${name}`, false, about)),
  ),
  ...Object.entries(standardHeaders).map(([name, about]) =>
    header(name, false, `${about} Present if Standard Webhooks are enabled.`),
  ),
  header(
    "User-Agent",
    true,
    `${Object.values(brandNames)
      .map(({ userAgent }) => userAgent)
      .join(" or ")}, unless the message sets its own.`,
  ),
];

const delay = {
  description: "When to retry: seconds, a duration such as 6m5s, or an HTTP date. At most 1 day.",
  schema: { type: "string" },
};

const responses = (): Json => ({
  "2XX": { description: "The message is delivered." },
  489: {
    description: "The attempt failed. There are no further retries if one of these headers is true.",
    headers: Object.fromEntries(
      prefixes.map((prefix) => [
        `${prefix}-NonRetryable-Error`,
        { schema: { type: "string", enum: ["true"] } },
      ]),
    ),
  },
  default: {
    description: "The attempt failed. It is retried while retries are left. Redirects are not followed.",
    headers: {
      "Retry-After": delay,
      "X-RateLimit-Reset": delay,
      "X-RateLimit-Reset-Requests": delay,
      "X-RateLimit-Reset-Tokens": delay,
    },
  },
});

type Webhook = { operationId: string; summary: string; description: string; requestBody: Json };

const webhook = ({ operationId, summary, description, requestBody }: Webhook): Json => ({
  post: {
    operationId,
    summary,
    description,
    security: [],
    parameters: parameters(),
    requestBody,
    responses: responses(),
  },
});

const json = (name: string): Json => ({
  required: true,
  content: { "application/json": { schema: { $ref: `#/components/schemas/${name}` } } },
});

/** Returns what destinations receive: the `webhooks` of the API document. */
export const webhooks = (): Json => ({
  delivery: webhook({
    operationId: "receiveDelivery",
    summary: "A message is delivered",
    description:
      "The message, sent to its destination with the method, headers and body of its publish request. " +
      "It can arrive more than once, each time with the same message id.",
    requestBody: {
      required: false,
      description: "The body of the message, byte for byte.",
      content: { "*/*": { schema: {} } },
    },
  }),
  callback: webhook({
    operationId: "receiveCallback",
    summary: "The result of an attempt",
    description:
      "Sent to the callback URL of a message after every attempt. It is a message itself, with its own id.",
    requestBody: json("Callback"),
  }),
  failureCallback: webhook({
    operationId: "receiveFailureCallback",
    summary: "A message has failed",
    description:
      "Sent to the failure callback URL of a message when its last attempt has failed. " +
      "It is a message itself, with its own id.",
    requestBody: json("FailureCallback"),
  }),
});
