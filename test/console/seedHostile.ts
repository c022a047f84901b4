import type { ConsoleServer } from "./consoleServer.ts";
import { hostileBody, hostileText } from "./hostile.ts";
import { call, until } from "./seed.ts";

/** Fills a server with hostile names, labels, URLs, responses and steps, wherever it accepts them. */
export async function seedHostile(server: ConsoleServer): Promise<void> {
  const { value } = hostileText;
  const { url: to } = server.destinations;
  const later = { "Svc-Delay": "1d", "Svc-Label": value, "Svc-Flow-Control-Key": value };
  const publish = (destination: string, headers: Record<string, string>, body = hostileBody) =>
    call(server, "POST /v2/batch", { body: JSON.stringify([{ destination, headers, body }]) });
  await publish(`${to}/ok/${value}`, { ...later, "Svc-Flow-Control-Value": "parallelism=1" });
  await publish(`${to}/hostile/${value}`, { "Svc-Retries": "0", "Svc-Label": value });
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
  await until("the hostile dead letters", async () => {
    const read = async (path: string) =>
      ((await call(server, `GET ${path}`)) as { messages: unknown[] }).messages.length;
    return (await read("/v2/dlq?label=large")) > 0 && (await read("/v2/workflows/dlq")) > 2;
  });
}
