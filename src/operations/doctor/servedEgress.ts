import { egressFields, type ReportedEgress } from "../../api/fields/egress.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { clientUrl } from "../../settings/addresses.ts";
import { type ServerConfig, toVariable } from "../../settings/config.ts";
import { ConfigRefused } from "../../settings/configSources.ts";
import { type EgressSettings, formatProxy, openEgress } from "../../settings/egressSettings.ts";
import { type CheckResult, ok, toErrorText, warning } from "./finding.ts";
import { type Reply, requestReply } from "./request.ts";

/** The settings of a server, or null with the reason. */
export type ServedEgress = { settings: EgressSettings | null; about: CheckResult };

const path = "/v2/admin/egress";
/** The settings are short, except for a long list of destinations. */
const maxText = 1024 * 1024;
const password = toVariable("operatorPassword");

/**
 * Asks the server at the URL of the settings for the settings of its outgoing connections, as the operator.
 * `otherwise` says which settings are used if there is a reason not to use these.
 */
export async function askForEgress(own: ServerConfig, otherwise: string): Promise<ServedEgress> {
  const url = clientUrl(own);
  const none = (reason: string, fix: string): ServedEgress => ({
    settings: null,
    about: warning(`${reason}; ${otherwise}`, fix),
  });
  if (own.operatorPassword === "")
    return none(
      `${password} is not set, so the server at ${url} was not asked for its settings`,
      `set ${password} as for the server`,
    );
  const reply = await requestEgress(url, own.operatorPassword).catch((error: unknown) => toErrorText(error));
  if (typeof reply === "string")
    return none(
      `the server at ${url} does not respond (${reply})`,
      "start it, or name the address of a node with --public-url, or --host and --port",
    );
  if (reply.status !== 200) return none(...explainStatus(url, reply.status));
  const reported = readEgress(reply.text);
  if (reported === null) return none(...notReported(url));
  return useReported({ url, own, reported, none });
}

function requestEgress(url: string, operatorPassword: string): Promise<Reply> {
  const prefix = new URL(url).pathname.replace(/\/$/, "");
  const credentials = Buffer.from(`operator:${operatorPassword}`).toString("base64");
  return requestReply(url, `${prefix}${path}`, {
    headers: { authorization: `Basic ${credentials}` },
    maxText,
  });
}

const notReported = (url: string) =>
  [
    `the server at ${url} does not report its settings`,
    "use the waypost version that the server runs, and check its URL",
  ] as const;

function explainStatus(url: string, status: number): readonly [reason: string, fix: string] {
  if (status === 401)
    return [`the server at ${url} refuses the operator password`, `set ${password} as for the server`];
  if (status === 403)
    return [
      `the server at ${url} has no operator password, or a proxy refuses ${path}`,
      `start the server with ${password}, or name its own address with --public-url`,
    ];
  if (status === 404) return notReported(url);
  return [`the server at ${url} responds with status ${status}`, "read its log, and run the command again"];
}

const reportedSchema = toSchema(egressFields);

function readEgress(text: string): ReportedEgress | null {
  try {
    // The schema has the types of the fields.
    return reportedSchema.parse(JSON.parse(text)) as ReportedEgress;
  } catch {
    return null;
  }
}

type Reported = {
  url: string;
  own: EgressSettings;
  reported: ReportedEgress;
  none(reason: string, fix: string): ServedEgress;
};

/** Returns the settings of a server, if this command can use them as that server does. */
function useReported({ url, own, reported, none }: Reported): ServedEgress {
  const { egressProxy: proxy } = reported;
  const ownProxy = formatProxy(own);
  // The server does not show the credentials of its proxy.
  if (proxy !== null && proxy !== ownProxy)
    return none(
      `the server at ${url} uses the proxy ${proxy}, and this command ${ownProxy ?? "none"}`,
      `set ${toVariable("egressProxy")} as for the server`,
    );
  const settings = {
    ...reported,
    egressAllow: [...reported.egressAllow],
    egressProxy: proxy === null ? null : own.egressProxy,
  };
  try {
    openEgress(settings);
  } catch (error) {
    if (!(error instanceof ConfigRefused)) throw error;
    return none(
      `the settings of the server at ${url} cannot be used here (${error.message})`,
      "run the command on the machine of the server",
    );
  }
  return { settings, about: ok(`these are the settings of the server at ${url}`) };
}
