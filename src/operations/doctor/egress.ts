import type { TLSSocket } from "node:tls";
import { elapsed } from "../../engine/clock/clock.ts";
import type { ParsedUrl } from "../../engine/core/values/url.ts";
import { parseUrl } from "../../engine/core/values/url.ts";
import type { ExplainedSetting, ServerConfig } from "../../settings/config.ts";
import { toFlag } from "../../settings/config.ts";
import type { EgressSettings } from "../../settings/egressSettings.ts";
import { type FoundServer, silence } from "../../settings/foundServer.ts";
import {
  egressNames,
  formatEgressAllow,
  formatProxy,
  openEgress,
  proxyWarning,
} from "../../settings/egressSettings.ts";
import { toErrorText as toDeliveryErrorText } from "../../engine/delivery/deliveryError.ts";
import { lookUpWithSystem } from "../../engine/delivery/http/dns.ts";
import type { Egress } from "../../engine/delivery/http/egress.ts";
import type { FindConditions } from "../operation.ts";
import type { CheckResult, Finding } from "./finding.ts";
import { askForEgress } from "./servedEgress.ts";
import { formatSpan, ok, problem, runChecks, skipped, toErrorText, warning } from "./finding.ts";

/** Requests to the running server of a data folder. */
export type ServerReads = {
  findServer(data: string): Promise<FoundServer>;
  /** Returns the functions that find what is wrong with the things of operations. */
  loadFinders(): Promise<readonly FindConditions[]>;
  /** Returns the settings of its outgoing connections. Rejects if it does not report them. */
  readEgress(data: string): Promise<EgressSettings>;
};

/** The settings of the command, what each comes from, and the running server. */
type EgressOptions = {
  own: ServerConfig;
  explained: readonly ExplainedSetting[];
  runningServer: ServerReads;
};

/**
 * Returns what happens to a delivery to a URL before its request: the address, and the connection. Uses the
 * settings of the running server, or those of the command if flags try others or no server is found.
 */
export async function explainEgress(url: string, options: EgressOptions): Promise<Finding[]> {
  const parsed = parseUrl(url);
  const target = parsed && /^https?:$/.test(parsed.protocol) ? parsed : null;
  if (target === null)
    return [{ check: "url", verdict: "problem", text: `"${url}" is not an http:// or https:// URL` }];
  const { settings, about } = await findSettings(options);
  return [{ check: "settings", ...about }, ...(await explainWith(settings, target))];
}

type FoundSettings = { settings: EgressSettings; about: CheckResult };

/** Returns the settings to use, and which ones they are. */
async function findSettings({ own, explained, runningServer }: EgressOptions): Promise<FoundSettings> {
  const { data, databaseUrl } = own;
  const ofCommand = "these are the settings of the command";
  const use = (about: CheckResult, settings: EgressSettings = own): FoundSettings => ({ settings, about });
  const flags = egressNames.map(toFlag).filter((flag) => explained.some(({ from }) => from === flag));
  const tried = `with ${flags.join(" and ")}, ${ofCommand}`;
  if (databaseUrl !== "") {
    if (flags.length > 0) return use(ok(`${tried}, not of a server`));
    const served = await askForEgress(own, ofCommand);
    return use(served.about, served.settings ?? own);
  }
  const server = await runningServer.findServer(data);
  if (server === "none") return use(skipped(`no server runs on ${data}; ${ofCommand}`));
  if (server === "silent")
    return use(
      warning(`the server that uses ${data} ${silence}; ${ofCommand}`, "continue or restart its process"),
    );
  if (flags.length > 0) return use(ok(`${tried}, not of the server that runs on ${data}`));
  const served = await runningServer.readEgress(data).catch(() => null);
  return served === null
    ? use(
        warning(
          `the server that runs on ${data} does not report its settings; ${ofCommand}`,
          "use the waypost version that the server runs",
        ),
      )
    : use(ok(`these are the settings of the server that runs on ${data}`), served);
}

async function explainWith(settings: EgressSettings, target: ParsedUrl): Promise<Finding[]> {
  const egress = openEgress(settings);
  const proxy = formatProxy(settings);
  const findings = await runChecks([
    {
      name: "addresses",
      run: () =>
        proxy === null ? checkAddresses(target, egress, settings) : checkUrlAlone(target, egress, settings),
    },
  ]);
  if (findings.some(({ verdict }) => verdict === "problem")) return findings;
  return [
    ...findings,
    ...(await runChecks([{ name: "connection", run: () => checkConnection(target, egress, settings) }])),
  ];
}

async function checkAddresses(
  { hostname }: ParsedUrl,
  egress: Egress,
  settings: EgressSettings,
): Promise<CheckResult> {
  const name = hostname.replace(/^\[|\]$/g, "");
  const addresses = await lookUpWithSystem(name).catch((error: unknown) => toErrorText(error));
  if (typeof addresses === "string")
    return problem(`${name} has no address (${addresses})`, "correct the name, or the name servers");
  const refused = addresses.filter((address) => !egress.mayCall(address, name));
  if (refused.length === 0) return ok(`${name} is ${addresses.join(", ")}, which deliveries may call`);
  const [first = ""] = refused;
  const found = first === name ? name : `${name} is ${refused.join(", ")}, which`;
  const entry = egress.findAllowEntry(first, name);
  return makeRefusalProblem(found, entry && formatEgressAllow(settings, entry));
}

/** Checks a URL that goes to a proxy, which resolves the name. */
function checkUrlAlone({ hostname }: ParsedUrl, egress: Egress, settings: EgressSettings): CheckResult {
  const refused = egress.findHostRefusal(hostname);
  return refused
    ? makeRefusalProblem(
        hostname.replace(/^\[|\]$/g, ""),
        refused.allow && formatEgressAllow(settings, refused.allow),
      )
    : warning(proxyWarning, "set the proxy up so that it refuses private addresses");
}

/** `fix`: the setting that would allow it, or null. */
function makeRefusalProblem(found: string, fix: string | null): CheckResult {
  return problem(
    `${found} is not public, so deliveries to it are refused`,
    fix ?? "use another address: link-local and metadata addresses should never be allowed",
  );
}

/** Opens a connection as a delivery does, and sends nothing. */
async function checkConnection(
  { protocol, hostname, port, host }: ParsedUrl,
  egress: Egress,
  settings: EgressSettings,
): Promise<CheckResult> {
  const { connectTimeout } = settings;
  const connector = egress.connector(connectTimeout);
  const since = elapsed();
  const options = {
    ...{ hostname: hostname.replace(/^\[|\]$/g, ""), host, protocol },
    port: port === "" ? (protocol === "https:" ? "443" : "80") : port,
  };
  const opened = await new Promise<TLSSocket | Error>((resolve) =>
    connector(options, (error, socket) => resolve(error ?? (socket as TLSSocket))),
  );
  if (opened instanceof Error)
    return problem(
      `a connection to ${host} fails: ${toDeliveryErrorText(opened)}`,
      "check that the destination runs, its certificate, and the firewall or proxy in between",
    );
  const secured =
    protocol === "https:" ? `, ${opened.getProtocol?.() ?? "TLS"} with a valid certificate` : "";
  const proxy = formatProxy(settings);
  const via = proxy === null ? `to ${opened.remoteAddress}` : `through the proxy ${proxy}`;
  const text = `connected ${via} in ${formatSpan(elapsed() - since)}${secured}`;
  opened.destroy();
  return ok(text);
}
