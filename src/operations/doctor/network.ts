import { getServers, Resolver } from "node:dns/promises";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { ServerConfig } from "../../settings/config.ts";
import { type FoundServer, silence } from "../../settings/foundServer.ts";
import { type Check, type CheckResult, ok, problem, skipped, warning } from "./finding.ts";
import { checkPorts } from "./ports.ts";
import { checkProxy } from "./proxy.ts";
import { requestReply } from "./request.ts";

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

/** Returns the checks of the server that runs with the settings, and of the proxy before it. */
export const listServerChecks = (settings: ServerConfig, server: FoundServer): Check[] => [
  { name: "server", run: () => judgeServer(settings, server) },
  ...(server === "none" ? [{ name: "ports", run: () => checkPorts(settings) }] : []),
  { name: "proxy", run: () => checkProxy(settings) },
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

async function checkServer(url: string): Promise<CheckResult> {
  const { status, text } = await requestReply(url, "/v2/health/ready");
  if (status !== 200)
    return problem(`the server at ${url} is not ready: ${text || `status ${status}`}`, "read its log");
  const health = JSON.parse(text) as { held?: boolean; diskLow?: boolean; diskShort?: boolean };
  if (health.diskLow)
    return problem("the server refuses new messages: its disk is almost full", "free some space");
  if (health.diskShort)
    return warning("the server removes history early: its disk has little room", "free some space");
  if (health.held) return warning("all deliveries are paused by the operator", "waypost unhold");
  return ok(`the server at ${url} is ready`);
}
