import type { Logger } from "pino";
import { describeRefusal } from "../api/publishing/refusedHosts.ts";
import { systemClock } from "../engine/clock/clock.ts";
import { conditionWindow } from "../engine/core/explain/condition.ts";
import type { RefusedHostFact } from "../engine/core/explain/hostConditions.ts";
import { RefusedHosts, toHostname } from "../engine/core/node/refusedHosts.ts";
import type { AccountId, Millis } from "../engine/core/values/basics.ts";
import type { OnRefusedHost, RefusedHost } from "../engine/core/values/refusedHost.ts";
import { hour } from "../engine/core/values/time.ts";
import type { Egress } from "../engine/delivery/http/egress.ts";
import type { EgressSettings } from "../settings/egressSettings.ts";
import { formatEgressAllow, openEgress } from "../settings/egressSettings.ts";

/** The rules for outgoing connections of a server, which remember and log the hosts that they refuse. */
export type ServerEgress = Egress & {
  /** Remembers for an account that it has named a host, with its port, that is refused. */
  onRefusedHost(account: AccountId, host: string, refused: RefusedHost): void;
  /** Returns the hosts that an account has named within the last hour and that are still refused. */
  listRefusedHosts(account: AccountId, now: Millis): RefusedHostFact[];
};

/** Opens the rules for outgoing connections. Throws `ConfigRefused` as `openEgress` does. */
export function openServerEgress(settings: EgressSettings, log: Logger): ServerEgress {
  const now = (): Millis => systemClock.now();
  const logHost = createRefusedHostLog(log, {
    now,
    findSetting: (address, host) => {
      const entry = egress.findAllowEntry(address, host);
      return entry && formatEgressAllow(settings, entry);
    },
  });
  const egress = openEgress(settings, logHost);
  const hosts = new RefusedHosts();
  return {
    ...egress,
    onRefusedHost: (account, host, refused) => {
      hosts.note(account, host, now());
      logHost(toHostname(host), refused);
    },
    listRefusedHosts: (account, time) =>
      hosts
        .list(account, { after: time - conditionWindow, find: egress.findHostRefusal })
        .map(({ host, since, refused }) => ({ host, since, why: describeRefusal(refused) })),
  };
}

/** How long a refused host is not logged again, and how many hosts are logged within that time. */
const logSpan: Millis = hour;
const maxLogged = 20;

/**
 * Returns a function that logs that a host is refused because of its address, with the setting that would
 * allow it. It logs a host once an hour, and few hosts in all, because any account can name many.
 */
function createRefusedHostLog(log: Logger, { findSetting, now }: LogOptions): OnRefusedHost {
  const logged = new Map<string, Millis>();
  return (host, { address, isResolved }) => {
    const time = now();
    for (const [other, at] of logged) if (Math.abs(time - at) >= logSpan) logged.delete(other);
    if (logged.has(host) || logged.size >= maxLogged) return;
    logged.set(host, time);
    const setting = findSetting(address, host);
    const known = { host, ...(isResolved && { address }), ...(setting !== null && { setting }) };
    log.warn(known, setting === null ? neverAllowed : notPublic);
  };
}

/** `findSetting` returns the setting that would allow an address of a host, or null if none should. */
type LogOptions = { findSetting(address: string, host: string): string | null; now(): Millis };

const notPublic =
  "deliveries to this host are refused, because its address is not public; if you trust the host, allow it " +
  "with the setting";
const neverAllowed =
  "deliveries to this host are refused, because its address is link-local or of a metadata service";
