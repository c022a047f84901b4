import { largestMessageBytes, limits } from "../../engine/core/values/limits.ts";
import { minute } from "../../engine/core/values/time.ts";
import { duration, integer, keyRing, oneOf, path, pattern, requiredFolder } from "./settingValues.ts";

/** The settings of the store and its keys. */
export const storeRows = {
  data: {
    takes: requiredFolder,
    default: "./data",
    value: "<folder>",
    example: "/var/lib/waypost",
    help: "folder of the embedded store; one server per folder",
  },
  databaseUrl: {
    takes: pattern(/^$|^postgres(ql)?:\/\//, "a URL that begins with postgres:// or postgresql://"),
    default: "",
    value: "<url>",
    example: "postgres://waypost@db.internal/waypost?sslmode=verify-full",
    help: "postgres://… stores everything in PostgreSQL instead of a folder",
  },
  databasePooling: {
    takes: oneOf("session", "transaction"),
    default: "session",
    value: "<mode>",
    example: "transaction",
    help: "transaction if PostgreSQL is behind a pooler in transaction mode, such as PgBouncer",
  },
  replicate: {
    takes: path("folder"),
    default: "",
    value: "<folder>",
    example: "/mnt/other/waypost",
    help: "folder on another disk, in which the server keeps a second copy of a folder store",
  },
  keys: {
    takes: keyRing,
    default: "",
    value: "<keys>",
    example: "2:…,1:…",
    help: "keys that encrypt secrets, as printed by waypost keys new; the first one encrypts",
  },
  keysFile: {
    takes: path("file"),
    default: "",
    value: "<file>",
    example: "/etc/waypost/keys",
    help: "file with the keys that encrypt secrets; default: the file named keys in the data folder",
  },
} as const;

/** The settings of limits and retention. */
export const limitRows = {
  maxBody: {
    takes: integer(1024, largestMessageBytes),
    default: String(limits.messageBytes),
    value: "<bytes>",
    example: "67108864",
    help: "maximum size of the body of a message, in bytes",
  },
  maxQueues: {
    takes: integer(1, 1_000_000),
    default: String(limits.queues),
    value: "<n>",
    example: "50000",
    help: "queues that an account may have",
  },
  logRetention: {
    takes: duration(minute),
    default: "3d",
    value: "<duration>",
    example: "5d",
    help: "how long message logs are kept",
  },
  dlqRetention: {
    takes: duration(minute),
    default: "7d",
    value: "<duration>",
    example: "30d",
    help: "how long dead letters are kept",
  },
  auditRetention: {
    takes: duration(minute),
    default: "90d",
    value: "<duration>",
    example: "365d",
    help: "how long the audit log is kept",
  },
} as const;
