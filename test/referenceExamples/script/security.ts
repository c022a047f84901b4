import { createHmac } from "node:crypto";
import { startArea } from "../../recording/area.ts";
import { type Recorder, webhookSecret } from "../recorder.ts";

/** Signing keys. */
export async function showKeys(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "keys");
  await recorder.show(area, "GET /v2/keys");
  await recorder.show(area, "POST /v2/keys/rotate");
  await recorder.show(area, "GET /v2/keys/rotate", { query: { force: true } });
}

/** Tokens. */
export async function showTokens(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "tokens");
  const { json } = await recorder.show(area, "POST /v2/tokens", {
    body: { name: "checkout", verbs: ["publish"], destinations: ["https://example.com/*"], expires: "30d" },
  });
  const path = { tokenId: json.tokenId as string };
  await recorder.show(area, "GET /v2/tokens");
  await recorder.show(area, "GET /v2/tokens/{tokenId}", { path });
  await recorder.show(area, "DELETE /v2/tokens/{tokenId}", { path });
}

/** Alerts. */
export async function showAlerts(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "alerts", { plan: "paid" });
  await area.publish(area.publishTo("500", "invoices"), { headers: { "Svc-Retries": "0" } });
  await recorder.show(area, "PUT /v2/alerts", {
    body: { url: area.url("200", "alerts"), events: ["deadLetter.created"], secret: webhookSecret },
  });
  await recorder.show(area, "GET /v2/alerts");
  await recorder.show(area, "GET /v2/alerts/log", { until: ({ alerts }) => alerts[0]?.state === "sent" });
  await recorder.show(area, "DELETE /v2/alerts");
}

/** Sources. */
export async function showSources(recorder: Recorder): Promise<void> {
  const area = await startArea(recorder.session, "sources");
  const secret = "it is a secret";
  const { json } = await recorder.show(area, "POST /v2/sources", {
    body: {
      name: "github",
      destination: area.url("200", "github"),
      settings: { "Svc-Retries": "5" },
      verification: { scheme: "github", secret },
    },
  });
  const path = { sourceId: json.sourceId as string };
  const address = { secret: readSecret(json) };
  const body = '{"ref":"refs/heads/main"}';
  const signature = createHmac("sha256", secret).update(body).digest("hex");
  await recorder.show(area, "POST /v2/in/{secret}", {
    path: address,
    headers: {
      "Content-Type": "application/json",
      "X-GitHub-Event": "push",
      "X-Hub-Signature-256": `sha256=${signature}`,
    },
    body,
  });
  await area.ask("POST", `/v2/in/${address.secret}`, { token: null, body: "forged" });
  await recorder.show(area, "GET /v2/sources");
  await recorder.show(area, "GET /v2/sources/{sourceId}", { path });
  await recorder.show(area, "GET /v2/sources/{sourceId}/rejections", {
    path,
    until: ({ rejections }) => rejections.length > 0,
  });
  await area.ask("PATCH", `/v2/sources/${path.sourceId}`, { body: '{"keepsRejected":true}' });
  await area.ask("POST", `/v2/in/${address.secret}`, { token: null, body: "forged" });
  await recorder.show(area, "GET /v2/sources/{sourceId}/rejections/{callId}", {
    path: { ...path, callId: "1" },
  });
  await recorder.show(area, "POST /v2/sources/{sourceId}/rejections/send", { path });
  await recorder.show(area, "PATCH /v2/sources/{sourceId}", { path, body: { paused: true } });
  const rotated = await recorder.show(area, "POST /v2/sources/{sourceId}/rotate", { path });
  await recorder.show(area, "DELETE /v2/sources/{sourceId}", { path });
  const dropbox = await area.json("POST /v2/sources", {
    name: "dropbox",
    destination: area.url("200", "dropbox"),
    verification: {
      scheme: "hmac",
      header: "X-Dropbox-Signature",
      secret,
      handshake: { kind: "echo", parameter: "challenge" },
    },
  });
  const other = readSecret(dropbox.json);
  await recorder.show(area, "GET /v2/in/{secret}", {
    path: { secret: other },
    query: { challenge: "jZcQ0Xo3" },
  });
  recorder.hide(address.secret, "the-secret-of-the-source");
  for (const each of [readSecret(rotated.json), other]) recorder.hide(each, "another-secret-of-a-source");
}

const readSecret = (json: unknown): string => /\/v2\/in\/([^/?"]+)/.exec(JSON.stringify(json))?.[1] ?? "";
