import { statfs } from "node:fs/promises";
import { isIPv6 } from "node:net";
import type { OwnHosts } from "../api/auth/ownHosts.ts";
import type { ServerConfig } from "./config.ts";
import { toReportedEgress } from "./egressSettings.ts";
import { version } from "./version.ts";

/** Returns the settings that the API takes as they are. */
export const toApiSettings = (settings: ServerConfig) => ({
  retention: toRetention(settings),
  maxQueues: settings.maxQueues,
  maxBody: settings.maxBody,
  responseBytes: settings.responseLimit,
  brand: settings.brand,
  region: settings.region,
  egress: toReportedEgress(settings),
  corsOrigins: settings.corsOrigin,
  sendsFrom: settings.sendsFrom.map((network) =>
    network.includes("/") ? network : `${network}/${isIPv6(network) ? 128 : 32}`,
  ),
  prices: toPrices(settings),
  reservedPrices: settings.reservedPrices,
  trustProxy: settings.trustProxy.length > 0 ? settings.trustProxy : false,
  fastPath: settings.fastPath,
  version,
  ...(settings.databaseUrl === "" && { disk: () => readDisk(settings.data) }),
  publicUrl: settings.publicUrl,
});

/** Returns the hosts by which pages may reach the server. */
export const toOwnHosts = (
  { publicUrl, host, allowHost }: ServerConfig,
  isDevelopment: boolean,
): OwnHosts => ({ publicUrl, listensOn: host, allowed: allowHost, isDevelopment });

/** Returns the bytes of the disk of a folder, or null if the system does not say. */
const readDisk = (folder: string): Promise<{ free: number; total: number } | null> =>
  statfs(folder).then(
    ({ bavail, blocks, bsize }) => ({ free: bavail * bsize, total: blocks * bsize }),
    () => null,
  );

/** Returns how long histories are kept. */
export const toRetention = ({ logRetention, dlqRetention, auditRetention }: ServerConfig) => ({
  log: logRetention,
  deadLetters: dlqRetention,
  audit: auditRetention,
});

/** Returns the prices of usage. */
export const toPrices = ({ messagePrice, workflowPrice, bandwidthPrice }: ServerConfig) => ({
  messages: messagePrice,
  workflowMessages: workflowPrice,
  gigabyte: bandwidthPrice,
});
