import { day, hour, minute, second } from "./time.ts";

/** What an account may ask for. Beyond it a request is refused with a word on the limit. */
export const limits = {
  /** Bytes of one message. The body of a callback is a message, too, and what does not fit is cut. */
  messageBytes: 8 * 1024 * 1024,
  retries: 1000,
  delay: 366 * day,
  timeout: 12 * hour,
  /** Longest time for which a deduplication id, or a content, makes one message. */
  deduplicationWindow: 7 * day,
  labels: 32,
  /** Longest label, deduplication id and other names, in characters. */
  nameLength: 512,
  urlLength: 16 * 1024,
  /** As long as the name of a host can be (RFC 1035). Hosts stand in indexes, of which a database takes some 2,700 bytes at most. */
  hostLength: 255,
  /** Of the headers that go out for one message, names and values, those of its callbacks included. No setting is longer, either. */
  headerBytes: 64 * 1024,
  /** Callbacks of callbacks. */
  callbackDepth: 2,
  /** Of a queue or a flow control key: messages at once, and deliveries in a period. */
  parallelism: 10_000,
  rate: 1_000_000,
  period: 7 * day,
  /** Of an account; of queues unless the server is set up otherwise. */
  queues: 10_000,
  groups: 1_000,
  /** Of a URL group; and all their names and URLs together, in characters. */
  endpoints: 100,
  schedules: 200_000,
  groupLength: 128 * 1024,
  /** Bytes that one request, or one firing of a schedule, comes to when each endpoint of its URL group has a copy of the body. */
  fanOutBytes: 256 * 1024 * 1024,
  sources: 1_000,
  /** Besides the two that every account has. */
  tokens: 1_000,
  /** Of a workflow run: steps in its history, and their bytes as they are sent. */
  steps: 10_000,
  historyBytes: 64 * 1024 * 1024,
  /** Runs that were invoked by runs, one below the other. */
  invokeDepth: 100,
  /** Of a workflow run: events that came before anything waited for them, and their bytes. */
  notifications: 1_000,
  notificationBytes: 32 * 1024 * 1024,
  /** Waiters of one event that one request may wake. */
  waiters: 10_000,
} as const;

/** What holds when a request does not say. */
export const defaults = {
  retries: 3,
  timeout: 15 * minute,
  /** In which a rate counts. */
  period: second,
} as const;

/** The spans of time the house itself lives by. */
export const spans = {
  /** A node that is alive renews the leases of what it is sending long before this has passed. */
  lease: 30 * second,
  /** A line is served whenever a delivery of its host ends; if that was missed, after this at the latest. */
  waitlistCheck: second,
  /** A line whose account holds its share of a node is woken when one of its deliveries ends, or after this at the latest. */
  deniedWaitlistCheck: 5 * second,
  /** A message that has its slot of a queue is looked at again after this while the queue is paused. */
  pausedQueueCheck: 10 * second,
  /** A key whose first messages met no free hand lets more go on after this, or when one of its deliveries ends. */
  limiterCheck: 100,
  /** Same deduplication key within this time: one message. The message that was taken may have asked for another time. */
  deduplication: 10 * minute,
  /** Calls to a source with the same signature and topic within this time: one message. */
  signature: day,
  /** What a deleted account had under way is over after this: requests take hours at most, and so does the end of a lease. */
  afterDeletion: 7 * day,
  /** Receivers have so long to learn of new signing keys before the next rotation. */
  rotation: day,
  /** A finished message can still be read by its id for so long. */
  grace: minute,
  /** A flow control key is forgotten when it has not been used for so long. */
  idleKey: hour,
  /** A queue that nobody has set up is forgotten when nothing was sent through it for so long. */
  idleQueue: 7 * day,
} as const;

/** What may be in memory at once, in bytes of bodies: counts alone do not bound it, for a body may be empty or 8 MiB. */
export const memory = {
  /** In delivery, per node. The last one taken may go beyond. */
  sending: 256 * 1024 * 1024,
  /** Loaded by one batch, of messages that are to be sent. */
  batch: 32 * 1024 * 1024,
  /** On one page of a list. */
  page: 32 * 1024 * 1024,
  /** Settings of schedules or URL groups, as JSON, that are read at once. Larger settings are read by themselves. */
  settings: 4 * 1024 * 1024,
} as const;

/** So often may the lease of a message run out, without using up its retries, before it is taken for dangerous. */
export const maxLostAttempts = 5;

/** A history that is longer is not sent along where the endpoint can fetch it itself. */
export const lazyHistoryBytes = 1024 * 1024;

/** Response bodies in the log are cut to this many bytes. The dead letter queue keeps more of them: see `--response-limit`. */
export const logBodyBytes = 16 * 1024;
