import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

/** Signing keys and their rotation, also with signatures of Standard Webhooks. */
export async function recordKeys(session: Session): Promise<void> {
  const area = await startArea(session, "keys", { standardWebhooks: true });
  const publish = (label: string) => area.publish(area.publishTo("200", label), { body: label });
  await area.ask("GET", "/v2/keys");
  await publish("before");
  await area.ask("POST", "/v2/keys/rotate");
  await publish("rotated");
  await area.ask("POST", "/v2/keys/rotate");
  await area.ask("POST", "/v2/keys/rotate?force=true");
  await area.ask("GET", "/v2/keys/rotate");
  await area.ask("GET", "/v2/keys");
  await publish("forced");
  await area.ask("GET", "/v2/keys", { token: area.account.readOnlyToken });
  await area.ask("GET", "/v2/audit?action=key.rotate");
}
