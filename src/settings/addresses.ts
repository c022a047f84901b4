import type { ServerConfig } from "./config.ts";

/** Returns where clients reach a server: its public URL, or else the address that it listens on. */
export const clientUrl = ({
  host,
  port,
  publicUrl,
}: Pick<ServerConfig, "host" | "port" | "publicUrl">): string =>
  publicUrl === "" ? formatUrl(host, { port }) : publicUrl;

/** Returns the URL of an address that a server listens on. */
export function formatUrl(host: string, address: { port: number } | string | null): string {
  const port = address && typeof address === "object" ? address.port : 0;
  const name = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}
