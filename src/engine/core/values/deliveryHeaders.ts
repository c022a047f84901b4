type DeliveryHeader = { name: string; isAlways: boolean; about: string };

/**
 * The headers that this server adds to a delivery, without the prefix of the brand. A message cannot forward
 * headers of these names. `isAlways` means that every delivery has the header.
 */
export const deliveryHeaders = {
  signature: {
    name: "Signature",
    isAlways: true,
    about: "A JSON Web Token that proves who sent this body to this URL.",
  },
  messageId: {
    name: "Message-Id",
    isAlways: true,
    about: "The id of the message, the same for every attempt.",
  },
  retried: {
    name: "Retried",
    isAlways: true,
    about:
      "How many attempts came before this one: 0 for the first. It includes attempts " +
      "that a crash of the server interrupted. For a message that is pulled, it does not include attempts " +
      "that no client received, or that an operator ended.",
  },
  attempt: {
    name: "Attempt",
    isAlways: false,
    about:
      "The token with which the receiver reports the outcome of this attempt later. It is present if the " +
      "message has Ack-Timeout. Keep it secret: it is the right to report.",
  },
  callerIp: {
    name: "Caller-Ip",
    isAlways: false,
    about: "The IP address of the client that published the message, if it is known.",
  },
  topicName: {
    name: "Topic-Name",
    isAlways: false,
    about: "The URL group that the message was published to.",
  },
  scheduleId: { name: "Schedule-Id", isAlways: false, about: "The schedule that published the message." },
  runId: { name: "Workflow-RunId", isAlways: false, about: "The workflow run that the message belongs to." },
  runCreatedAt: {
    name: "Workflow-CreatedAt",
    isAlways: false,
    about: "When the workflow run was created, in Unix milliseconds.",
  },
  region: { name: "Region", isAlways: true, about: "The region of the server, as its operator has set it." },
} as const satisfies Record<string, DeliveryHeader>;

/** The name of a delivery header in this code. */
export type DeliveryHeaderName = keyof typeof deliveryHeaders;

/** The headers of deliveries of an account that has enabled Standard Webhooks. */
export const standardHeaders = {
  "webhook-id": "The id of the message.",
  "webhook-timestamp": "When this attempt was signed, in Unix seconds.",
  "webhook-signature": "One or two signatures by the rules of Standard Webhooks, separated by a space.",
} as const;
