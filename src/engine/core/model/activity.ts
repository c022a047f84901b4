/** How a message came to be: published, reporting on another message, from a schedule, or for a run. */
export const messageOrigins = ["message", "callback", "schedule", "step"] as const;
/** The origin of a message. */
export type MessageOrigin = (typeof messageOrigins)[number];

/**
 * The types of steps that are counted by name. `plan` is the announcement of a parallel step. A client may
 * invent other types, which are counted together as `other`.
 */
export const countedStepTypes = [
  ...["Initial", "Run", "SleepFor", "SleepUntil", "Call", "Wait", "WaitForWebhook", "CreateWebhook"],
  ...["Notify", "Invoke", "plan", "other"],
];

/** The names of everything that a node counts about what its commands did. */
export const activityNames = [
  ...messageOrigins.map((origin) => `published ${origin}` as const),
  ...(["delivered", "failed", "cancelled"] as const).map((end) => `finished ${end}` as const),
  ...(["started", "succeeded", "failed", "cancelled"] as const).map((what) => `run ${what}` as const),
  ...countedStepTypes.map((type): `step ${string}` => `step ${type}`),
  "step ran on",
  "schedule fired",
  "lease expired",
  "acknowledged attempt expired",
  "dead letter expired",
  "alert dropped",
  "quarantined",
  "repaired",
] as const;

/** The name of something that a command did. */
export type ActivityName = (typeof activityNames)[number];

/** Something that a command did. `late`: by how many milliseconds it was late, if that is measured. */
export type Activity = { name: ActivityName; late?: number };
