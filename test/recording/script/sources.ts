import { createHmac } from "node:crypto";
import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

/** Sources: what senders of webhooks call. */
export async function recordSources(session: Session): Promise<void> {
  const area = await startArea(session, "sources");
  const make = async (body: object) => {
    const { json } = await area.json("POST /v2/sources", body);
    const [, secret] = /\/v2\/in\/([^/?"]+)/.exec(JSON.stringify(json)) ?? [];
    session.keepSecret(secret);
    return { id: String(json.sourceId ?? json.id), path: `/v2/in/${secret}` };
  };
  const open = await make({
    name: "open",
    destination: area.url("200", "open"),
    settings: { "Svc-Retries": "0", "Svc-Forward-X-Source": "s" },
  });
  const hub = await make({
    name: "hub",
    destination: area.url("200", "hub"),
    verification: { scheme: "github", secret: "the secret" },
  });
  await area.json("POST /v2/sources", { name: "no destination" });
  await area.json("POST /v2/sources", {
    name: "bad",
    destination: area.url("200", "bad"),
    verification: { scheme: "none" },
  });
  const call = async (path: string, more = {}) => {
    const answer = await area.ask("POST", path, { token: null, ...more });
    for (const id of new Set(answer.text.match(/msg_\w+/g))) await session.settled(id, area.account.token);
  };
  for (const chunked of [false, true])
    await call(open.path, {
      chunked,
      body: "event",
      headers: { "content-type": "text/plain", "X-Sent": "1" },
    });
  const signature = `sha256=${createHmac("sha256", "the secret").update("signed").digest("hex")}`;
  const signed = {
    "X-Hub-Signature-256": signature,
    "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "X-GitHub-Event": "ping",
  };
  await call(hub.path, { body: "signed", headers: signed });
  await call(hub.path, { body: "signed", headers: signed });
  await call(hub.path, { body: "forged", headers: signed });
  await call(hub.path, { body: "unsigned" });
  await call("/v2/in/unknown", { body: "x" });
  await area.ask("GET", hub.path, { token: null });
  await area.ask("GET", "/v2/sources");
  await area.ask("GET", `/v2/sources/${hub.id}`);
  await area.eventually(`/v2/sources/${hub.id}/rejections`, ({ rejections }) => {
    return rejections === undefined || rejections.length >= 2;
  });
  await area.json(`PATCH /v2/sources/${open.id}`, { name: "renamed", destination: area.url("200", "moved") });
  await call(open.path, { body: "to the new place" });
  const rotated = await area.ask("POST", `/v2/sources/${open.id}/rotate`);
  const [, secret] = /\/v2\/in\/([^/?"]+)/.exec(rotated.text) ?? [];
  session.keepSecret(secret);
  await call(open.path, { body: "to the old address" });
  await call(`/v2/in/${secret}`, { body: "to the new address" });
  await area.ask("DELETE", `/v2/sources/${open.id}`);
  await area.ask("DELETE", `/v2/sources/${open.id}`);
  await area.ask("GET", "/v2/sources/none");
}
