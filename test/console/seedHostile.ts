import type { ConsoleServer } from "./consoleServer.ts";
import { operatorPassword } from "./consoleServer.ts";
import { hostileBody, hostileText } from "./hostile.ts";
import { call, until } from "./seed.ts";

type Published = { destination: string; headers: Record<string, string>; body?: string | undefined };

const publishOne = (server: ConsoleServer, { destination, headers, body = hostileBody }: Published) =>
  call(server, "POST /v2/batch", { body: JSON.stringify([{ destination, headers, body }]) });

/** Publishes a message with a hostile URL, label and body, which gets a hostile response. */
export const publishHostile = (server: ConsoleServer): Promise<unknown> =>
  publishOne(server, {
    destination: `${server.destinations.url}/hostile/${hostileText.value}`,
    headers: { "Svc-Retries": "0", "Svc-Label": hostileText.value },
  });

/** Fills a server with hostile names, labels, URLs, responses and steps, wherever it accepts them. */
export async function seedHostile(server: ConsoleServer): Promise<void> {
  const { value } = hostileText;
  const { url: to } = server.destinations;
  const later = { "Svc-Delay": "1d", "Svc-Label": value, "Svc-Flow-Control-Key": value };
  const publish = (destination: string, headers: Record<string, string>, body?: string) =>
    publishOne(server, { destination, headers, body });
  await publish(`${to}/ok/${value}`, { ...later, "Svc-Flow-Control-Value": "parallelism=1" });
  await publishHostile(server);
  await publish(`${to}/fail/x`, { "Svc-Retries": "0", "Svc-Label": "large" }, "x".repeat(1024 * 1024 - 8));
  await call(server, "POST /v2/tokens", { body: JSON.stringify({ name: value, verbs: ["read"] }) });
  await call(server, "POST /v2/sources", {
    body: JSON.stringify({ name: value, destination: `${to}/ok/${value}` }),
  });
  await call(server, "POST /v2/topics/hostile/endpoints", {
    body: JSON.stringify({ endpoints: [{ name: value, url: `${to}/ok/hostile` }] }),
  });
  await call(server, `POST /v2/trigger/${to}/workflows/hostile`, {
    headers: { "svc-workflow-runid": "hostile", "svc-retries": "0" },
    body: hostileBody,
  });
  const authorization = `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}`;
  await call(server, "POST /v2/admin/accounts", {
    headers: { authorization },
    body: JSON.stringify({ name: value }),
  });
  await until("the hostile dead letters", async () => {
    const read = async (path: string) =>
      ((await call(server, `GET ${path}`)) as { messages: unknown[] }).messages.length;
    return (await read("/v2/dlq?label=large")) > 0 && (await read("/v2/workflows/dlq")) > 2;
  });
}
