import { once } from "node:events";
import { createServer } from "node:net";
import { formatUrl } from "../../settings/addresses.ts";
import type { ServerConfig } from "../../settings/config.ts";
import { toFlag } from "../../settings/config.ts";
import type { CheckResult } from "./finding.ts";
import { ok, problem, toErrorText } from "./finding.ts";
import { requestReply } from "./request.ts";

type PortName = "port" | "accountPort" | "metricsPort";
type Place = { name: PortName; host: string; port: number };

/**
 * Tries whether a server with the settings could open its ports. Opens each for a moment, because only that
 * shows it.
 */
export async function checkPorts(settings: ServerConfig): Promise<CheckResult> {
  const { host, metricsHost } = settings;
  const named = [
    { name: "port", host, port: settings.port },
    { name: "accountPort", host, port: settings.accountPort },
    { name: "metricsPort", host: metricsHost, port: settings.metricsPort },
  ] as const;
  const places = named.filter((place): place is (typeof named)[number] & Place => Boolean(place.port));
  for (const place of places) {
    const error = await tryToListen(place);
    if (error !== null) return judgePort(place, error, settings.databaseUrl !== "");
  }
  return places.length === 0
    ? ok("a start chooses a free port")
    : ok(`free for a start: ${places.map(({ port, name }) => `${port} (${toFlag(name)})`).join(", ")}`);
}

async function tryToListen({ host, port }: Place): Promise<Error | null> {
  const server = createServer();
  try {
    await once(server.listen(port, host), "listening");
    await once(server.close(), "close");
    return null;
  } catch (error) {
    return error as Error;
  }
}

/** `isShared`: other nodes use the store, of which one may run on this machine. */
async function judgePort(place: Place, error: Error, isShared: boolean): Promise<CheckResult> {
  const { name, host, port } = place;
  const flag = toFlag(name);
  const code: unknown = Reflect.get(error, "code");
  if (code === "EADDRINUSE") {
    const isWaypost = await hasWaypost(place);
    if (isWaypost && isShared) return ok(`a Waypost server answers at port ${port} (${flag})`);
    const user = isWaypost ? "a Waypost server with other data" : "another program";
    return problem(
      `port ${port} (${flag}) is in use by ${user}`,
      `stop that ${isWaypost ? "server" : "program"}, or choose another port with ${flag}`,
    );
  }
  const hostFlag = toFlag(name === "metricsPort" ? "metricsHost" : "host");
  return problem(
    `port ${port} (${flag}) of ${host} cannot be opened (${toErrorText(error)})`,
    code === "EACCES"
      ? `choose a port of at least 1024 with ${flag}`
      : `choose an address of this machine with ${hostFlag}`,
  );
}

/** Reports whether a Waypost server answers at a port. A port for metrics has no health. */
async function hasWaypost({ name, host, port }: Place): Promise<boolean> {
  const [path, sign] =
    name === "metricsPort" ? ["/metrics", "waypost_build_info"] : ["/v2/health", '"status":"ok"'];
  const reply = await requestReply(formatUrl(host, { port }), path).catch(() => null);
  return reply?.text.includes(sign) ?? false;
}
