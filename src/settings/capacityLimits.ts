import type { Logger } from "pino";
import { limitToDescriptors } from "../engine/core/node/descriptors.ts";
import { descriptorLimit } from "../engine/delivery/http/descriptors.ts";
import type { ServerConfig } from "./config.ts";

/** Returns how many deliveries and sockets the process may have within its limit of file descriptors. */
export function readCapacityLimits(
  { maxDeliveries }: ServerConfig,
  log: Logger,
): ReturnType<typeof limitToDescriptors> {
  const descriptors = descriptorLimit();
  const capacityLimits = limitToDescriptors(descriptors, maxDeliveries);
  if (capacityLimits.capacity < maxDeliveries)
    log.warn({ descriptors, deliveries: capacityLimits.capacity }, fewDescriptorsWarning);
  return capacityLimits;
}

/** Returns the limits of deliveries. */
export const toDeliverLimits = (
  { responseLimit, maxBody, connectTimeout }: ServerConfig,
  { capacity, sockets }: ReturnType<typeof limitToDescriptors>,
) => ({
  responseBytes: responseLimit,
  maxBody,
  connectTimeout,
  connectionsPerOrigin: capacity,
  sockets,
});

const fewDescriptorsWarning =
  "the limit of open files is too low for --max-deliveries, because at most half of them are used for " +
  "deliveries; " +
  "raise the limit (ulimit -n)";
