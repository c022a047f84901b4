import { getServers, Resolver } from "node:dns/promises";
import type { TLSSocket } from "node:tls";
import { elapsed } from "../../clock/clock.ts";
import type { Millis } from "../../core/model/message.ts";
import type { ParsedUrl } from "../../core/values/url.ts";
import { parseUrl } from "../../core/values/url.ts";
import type { FoundServer } from "../accountAdmin.ts";
import { silence } from "../accountAdmin.ts";
import type { ServerConfig } from "../config.ts";
import { formatProxy, openEgress, proxyWarning } from "../egressSettings.ts";
import { toErrorText as toDeliveryErrorText } from "../../delivery/deliveryError.ts";
import { lookUpWithSystem } from "../../delivery/http/dns.ts";
import type { Egress } from "../../delivery/http/egress.ts";
import type { Check, Finding, CheckResult } from "./finding.ts";
import { formatSpan, ok, problem, runChecks, skipped, toErrorText, warning } from "./finding.ts";

/** Returns the checks of the network. */
export const listNetworkChecks = (): Check[] => [{ name: "dns", run: checkNameServers }];

const dnsTimeout: Millis = 2_000;
/** A name that no server knows. Every response shows that the server works. */
const unknownName = "waypost-doctor.invalid";

async function checkNameServers(): Promise<CheckResult> {
  const servers = getServers();
  if (servers.length === 0) return warning("the system has no name servers", "add one to /etc/resolv.conf");
  const silent: string[] = [];
  for (const server of servers) if (!(await isNameServerUp(server))) silent.push(server);
  if (silent.length === 0) return ok(`the name servers answer: ${servers.join(", ")}`);
  const text = `name servers do not answer: ${silent.join(", ")}`;
  const fix = "correct the servers in /etc/resolv.conf; every delivery to a name needs them";
  return silent.length < servers.length ? warning(text, fix) : problem(text, fix);
}

async function isNameServerUp(server: string): Promise<boolean> {
  const resolver = new Resolver({ timeout: dnsTimeout, tries: 1 });
  resolver.setServers([server]);
  try {
    await resolver.resolve4(unknownName);
    return true;
  } catch (error) {
    return !["ETIMEOUT", "ECONNREFUSED", "ECANCELLED"].includes(String(Reflect.get(error as object, "code")));
  }
}

/** Returns what happens to a delivery to a URL before its request: the address, and the connection. */
export async function explainEgress(url: string, settings: ServerConfig): Promise<Finding[]> {
  const parsed = parseUrl(url);
  const target = parsed && /^https?:$/.test(parsed.protocol) ? parsed : null;
  if (target === null)
    return [{ check: "url", verdict: "problem", text: `"${url}" is not an http:// or https:// URL` }];
  const egress = openEgress(settings);
  const proxy = formatProxy(settings);
  const findings = await runChecks([
    {
      name: "addresses",
      run: () => (proxy === null ? checkAddresses(target, egress) : checkUrlAlone(target, egress)),
    },
  ]);
  if (findings.some(({ verdict }) => verdict === "problem")) return findings;
  return [
    ...findings,
    ...(await runChecks([{ name: "connection", run: () => checkConnection(target, egress, settings) }])),
  ];
}

async function checkAddresses({ hostname }: ParsedUrl, egress: Egress): Promise<CheckResult> {
  const name = hostname.replace(/^\[|\]$/g, "");
  const addresses = await lookUpWithSystem(name).catch((error: unknown) => toErrorText(error));
  if (typeof addresses === "string")
    return problem(`${name} has no address (${addresses})`, "correct the name, or the name servers");
  const refused = addresses.filter((address) => !egress.mayCall(address));
  if (refused.length === 0) return ok(`${name} is ${addresses.join(", ")}, which deliveries may call`);
  const [first = ""] = refused;
  const found = first === name ? name : `${name} is ${refused.join(", ")}, which`;
  return makeRefusalProblem(found, egress.refusedHost(first)?.allow ?? null);
}

/** Checks a URL that goes to a proxy, which resolves the name. */
function checkUrlAlone({ hostname }: ParsedUrl, egress: Egress): CheckResult {
  const refused = egress.refusedHost(hostname);
  return refused
    ? makeRefusalProblem(hostname.replace(/^\[|\]$/g, ""), refused.allow)
    : warning(proxyWarning, "set the proxy up so that it refuses private addresses");
}

function makeRefusalProblem(found: string, allow: string | null): CheckResult {
  return problem(
    `${found} is not public, so deliveries to it are refused`,
    allow === null
      ? "use another address: link-local and metadata addresses should never be allowed"
      : `WAYPOST_EGRESS_ALLOW=${allow}`,
  );
}

/** Opens a connection as a delivery does, and sends nothing. */
async function checkConnection(
  { protocol, hostname, port, host }: ParsedUrl,
  egress: Egress,
  settings: ServerConfig,
): Promise<CheckResult> {
  const { connectTimeout } = settings;
  const connector = egress.connector(connectTimeout);
  const since = elapsed();
  const given = {
    ...{ hostname: hostname.replace(/^\[|\]$/g, ""), host, protocol },
    port: port === "" ? (protocol === "https:" ? "443" : "80") : port,
  };
  const opened = await new Promise<TLSSocket | Error>((resolve) =>
    connector(given, (error, socket) => resolve(error ?? (socket as TLSSocket))),
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

/** How long a server or a proxy may take for a response. */
const responseTimeout: Millis = 5_000;

/** Returns the checks of the server that runs with the settings, and of the proxy before it. */
export const listServerChecks = (settings: ServerConfig, server: FoundServer): Check[] => [
  { name: "server", run: () => judgeServer(settings, server) },
  { name: "proxy", run: () => checkProxy(settings.publicUrl) },
];

function judgeServer(settings: ServerConfig, server: FoundServer): CheckResult | Promise<CheckResult> {
  if (server === "none") return noServer(settings);
  if (server === "silent")
    return problem(`the server that uses ${settings.data} ${silence}`, "continue or restart its process");
  return checkServer(server.url);
}

const noServer = ({ databaseUrl, data }: ServerConfig): CheckResult =>
  skipped(
    databaseUrl === ""
      ? `no server runs on ${data}`
      : "whether a node runs on this machine is not known; ask it with waypost health",
  );

type Reply = { status: number; text: string };

async function fetchReply(url: string, init: RequestInit = {}): Promise<Reply> {
  const response = await fetch(url, {
    ...init,
    redirect: "manual",
    signal: AbortSignal.timeout(responseTimeout),
  });
  return { status: response.status, text: (await response.text()).slice(0, 500) };
}

async function checkServer(url: string): Promise<CheckResult> {
  const { status, text } = await fetchReply(`${url}/v2/health/ready`);
  if (status !== 200)
    return problem(`the server at ${url} is not ready: ${text || `status ${status}`}`, "read its log");
  const health = JSON.parse(text) as { held?: boolean; diskLow?: boolean; diskShort?: boolean };
  if (health.diskLow)
    return problem("the server refuses new messages: its disk is almost full", "free some space");
  if (health.diskShort)
    return warning("the server removes history early: its disk has little room", "free some space");
  if (health.held) return warning("the server holds all deliveries", "waypost unhold");
  return ok(`the server at ${url} is ready`);
}

/** A body that is larger than the proxies' usual limit of 1 MiB. */
const largeBody = 1_200_000;

/**
 * Sends three harmless requests through the proxy in front of the server. Two of them have no token, and
 * paths that do not exist unless the proxy changes them.
 */
async function checkProxy(publicUrl: string): Promise<CheckResult> {
  if (publicUrl === "") return skipped("no --public-url is set, so no proxy was tried");
  const health = await fetchReply(`${publicUrl}/v2/health`).catch((error: unknown) => toErrorText(error));
  if (typeof health === "string" || health.status !== 200)
    return problem(
      `${publicUrl}/v2/health: ${typeof health === "string" ? health : `status ${health.status}`}`,
      "correct --public-url, or let the proxy pass every path to the server",
    );
  for (const path of ["/v2//health", "/v2/%2Fhealth"])
    if ((await fetchReply(`${publicUrl}${path}`)).status === 200)
      return problem(
        `${publicUrl} merges slashes, so a destination such as https://… in a path is damaged`,
        "nginx: merge_slashes off; and proxy_pass without a path",
      );
  const large = { method: "POST", body: new Uint8Array(largeBody) };
  // The server may refuse the request before it has read the body, which ends the connection.
  const reply = await fetchReply(`${publicUrl}/v2/publish/https://example.com`, large).catch(() => null);
  if (reply?.status === 413)
    return problem(
      `${publicUrl} refuses bodies of ${formatMegabytes(largeBody)}`,
      "nginx: client_max_body_size 16m",
    );
  return ok(`${publicUrl} passes paths and bodies on unchanged`);
}

const formatMegabytes = (bytes: number): string => `${(bytes / 1_000_000).toFixed(1)} MB`;
