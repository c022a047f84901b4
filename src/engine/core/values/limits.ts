import { day, hour, minute, second } from "./time.ts";

/**
 * The largest values that the server accepts. A request beyond a limit is refused with an error that names
 * the limit.
 */
export const limits = {
  /**
   * The bytes of one message. A setting of the server can change it. The body of a callback is a message too;
   * a body that is too large is cut.
   */
  messageBytes: 10 * 1024 * 1024,
  retries: 1000,
  delay: 366 * day,
  timeout: 12 * hour,
  /** The longest time for which a receiver may hold an attempt before it reports the outcome. */
  ackTimeout: 12 * hour,
  /** The origins of an account whose messages are pulled. */
  pulledOrigins: 100,
  /** The attempts of one pull, and how long it waits for the first. */
  pulledAttempts: 100,
  pullWait: 60 * second,
  /**
   * The pulls that wait: of one account on a server, and of all accounts on it. An account with more than an
   * eighth of all leaves the last eighth to others: see `engine/core/node/lastPart.ts`.
   */
  pulls: 2_000,
  serverPulls: 10_000,
  /** The longest time for which a deduplication key is held. */
  deduplicationWindow: 90 * day,
  labels: 32,
  /** The longest label, deduplication id or other name, in characters. */
  nameLength: 512,
  urlLength: 16 * 1024,
  /**
   * The longest name of a host (RFC 1035). Hosts are in indexes, and a database accepts about 2,700 bytes per
   * index entry.
   */
  hostLength: 255,
  /**
   * The bytes of the names and values of all headers that are sent for one message, including the headers of
   * its callbacks. A single setting has the same limit.
   */
  headerBytes: 64 * 1024,
  /** How deep callbacks of callbacks can be nested. */
  callbackDepth: 2,
  /** The limits of a queue or a flow-control key: messages in flight, and deliveries in a period. */
  parallelism: 10_000,
  rate: 1_000_000,
  period: 7 * day,
  /** The limits of an account. The number of queues can be changed by a setting of the server. */
  queues: 10_000,
  groups: 1_000,
  /** The limits of a URL group: its endpoints, and all their names and URLs together, in characters. */
  endpoints: 100,
  schedules: 200_000,
  groupLength: 128 * 1024,
  /**
   * The bytes of all copies of the body that one request, or one firing of a schedule, sends to the endpoints
   * of its URL group.
   */
  fanOutBytes: 256 * 1024 * 1024,
  sources: 1_000,
  /** The tokens in addition to the two that every account has. */
  tokens: 1_000,
  /** The jobs of an account, including those that have ended. */
  jobs: 100,
  /** The characters of the filter of a job, as JSON. */
  jobFilter: 64 * 1024,
  /** The open tails of the log: of one account on a server, and of all accounts on it. */
  tails: 10,
  serverTails: 100,
  /** The bytes of the lines that wait for the reader of one tail. */
  tailBytes: 1024 * 1024,
  /**
   * The limits of a workflow run: the steps in its history, and their bytes as they are sent. The largest
   * body has 86 MiB in base64, and must leave room for steps.
   */
  steps: 10_000,
  historyBytes: 128 * 1024 * 1024,
  /** How deep invoked runs can be nested. */
  invokeDepth: 100,
  /**
   * The limits of a workflow run for events that arrive before a step waits for them: their number, and their
   * bytes.
   */
  notifications: 1_000,
  notificationBytes: 32 * 1024 * 1024,
  /** The number of waiters of one event that one request may wake. */
  waiters: 10_000,
} as const;

/** The largest value of the setting of the server for the bytes of one message. */
export const largestMessageBytes = 64 * 1024 * 1024;

/** The values of settings that a request does not give. */
export const defaults = {
  retries: 3,
  timeout: 15 * minute,
  /** The period of a rate. */
  period: second,
} as const;

/** The periods of time after which the server acts on its own. */
export const spans = {
  /** The length of a lease. A live node renews the leases of its deliveries long before they expire. */
  lease: 30 * second,
  /** A waitlist is served whenever a delivery to its host ends, or after this time at the latest. */
  waitlistCheck: second,
  /**
   * A waitlist whose account has used up its share of a node is served when a delivery of the account ends,
   * or after this time at the latest.
   */
  deniedWaitlistCheck: 5 * second,
  /** A message that holds a slot of a paused queue is checked again after this time. */
  pausedQueueCheck: 10 * second,
  /**
   * If the first messages of a key found no free delivery capacity, more messages of the key may pass after
   * this time, or when a delivery of the key ends.
   */
  limiterCheck: 100,
  /** How long a deduplication key is held, unless the accepted message asked for another time. */
  deduplication: 10 * minute,
  /** How long calls to a source with the same signature and topic count as one message. */
  signature: day,
  /** How long a repeated report of an attempt gets the same answer. */
  report: hour,
  /** The time after which a deleted account has nothing in flight. A request or a lease lasts only hours. */
  afterDeletion: 7 * day,
  /** The time that receivers have to learn new signing keys before the next rotation. */
  rotation: day,
  /** How long the cancellation of a finished message is answered without an error. */
  grace: minute,
  /** A flow-control key is removed if it has not been used for this time. */
  idleKey: hour,
  /** A queue that was not created explicitly is removed if nothing was sent through it for this time. */
  idleQueue: 7 * day,
} as const;

/**
 * The bytes of bodies that may be in memory at once. A limit on the number of messages is not enough, because
 * a body may be empty or have 64 MiB.
 */
export const memory = {
  /** In flight, per node. The last message taken may exceed it. */
  sending: 256 * 1024 * 1024,
  /** Loaded by one batch for messages that it sends. */
  batch: 32 * 1024 * 1024,
  /** Histories of recent runs, per node. */
  histories: 32 * 1024 * 1024,
  /** On one page of a list. */
  page: 32 * 1024 * 1024,
  /**
   * The settings of schedules or URL groups, as JSON, that are read at once. Larger settings are read one by
   * one.
   */
  settings: 4 * 1024 * 1024,
} as const;

/**
 * The number of times that the lease of a message may expire without using up a retry. After that, the
 * message itself may be what makes nodes fail, so it fails.
 */
export const maxLostAttempts = 5;

/** A longer history, in bytes, is not sent to an endpoint that can fetch it itself. */
export const lazyHistoryBytes = 1024 * 1024;

/**
 * Response bodies in the log are cut to this number of bytes. The dead letter queue keeps more: see
 * `--response-limit`.
 */
export const logBodyBytes = 16 * 1024;
