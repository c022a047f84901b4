import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { readField, readPairs, writePairs } from "../../parts/words.ts";

export type Source = Response<"GET /v2/sources">["sources"][number];

/** The ways to verify calls, with the names of the senders. */
const schemes: Readonly<Record<string, string>> = {
  stripe: "Stripe",
  github: "GitHub",
  slack: "Slack",
  shopify: "Shopify",
  twilio: "Twilio",
  linear: "Linear",
  standard: "Standard Webhooks",
  microsoft: "Microsoft Graph",
  hmac: "Any HMAC",
};

type FormProps = { source?: Source; close(): void; done(url: string, name: string): void };

/** Creates a source, or changes one. The verification of an existing source stays unless it is replaced. */
export function SourceForm({ source, close, done }: FormProps) {
  const known = source?.verification?.scheme;
  const [scheme, setScheme] = useState(source === undefined ? "standard" : "keep");
  const keepsScheme = scheme === "keep";
  const save = async (given: FormData): Promise<void> => {
    const replaces = keepsScheme && known !== undefined && readField(given, "secret") !== "";
    const body = readSource(given, replaces ? known : scheme);
    if (source) await send("PATCH /v2/sources/{sourceId}", { params: { sourceId: source.sourceId }, body });
    else {
      const { url } = await send("POST /v2/sources", { body });
      done(url, body.name);
    }
  };
  return (
    <FormDialog
      title={source ? `Source ${source.name || source.sourceId}` : "New source"}
      verb={source ? "Save" : "Create source"}
      close={close}
      act={save}
    >
      <Field name="Name">
        <input className="input" name="name" defaultValue={source?.name} autoFocus />
      </Field>
      <Field name="Destination" hint="A URL, or the name of a URL group.">
        <input className="input mono" name="destination" defaultValue={source?.destination} required />
      </Field>
      <Field name="Verification" hint="How the signature of each call is verified.">
        <select className="input" value={scheme} onChange={(event) => setScheme(event.target.value)}>
          {source && <option value="keep">Unchanged: {known ?? "not verified"}</option>}
          {Object.entries(schemes).map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
          <option value="none">None: the URL is the only secret</option>
        </select>
      </Field>
      {keepsScheme && known !== undefined && known !== "hmac" && <KeptSecret />}
      {!keepsScheme && scheme !== "none" && <SecretFields isHmac={scheme === "hmac"} />}
      <SettingsField settings={source?.settings ?? {}} />
      <label className="choice">
        <input
          className="check"
          type="checkbox"
          name="deduplicate"
          defaultChecked={source?.deduplicate ?? true}
        />
        Ignore repeated calls for the same event
      </label>
      <label className="choice">
        <input
          className="check"
          type="checkbox"
          name="keepsRejected"
          defaultChecked={source?.keepsRejected ?? false}
        />
        Keep rejected calls for a day, to send them later
      </label>
    </FormDialog>
  );
}

const SettingsField = ({ settings }: { settings: Source["settings"] }) => (
  <Field name="Settings" isOptional hint="Settings of the messages, one per line, such as “Svc-Retries: 5”.">
    <textarea
      className="input mono"
      name="settings"
      rows={3}
      spellCheck={false}
      defaultValue={writePairs(settings)}
    />
  </Field>
);

/** The secret of a source whose way of verification stays. An HMAC has more fields, which it needs again. */
const KeptSecret = () => (
  <Field name="Secret" hint="The secret that the sender signs with.">
    <input className="input mono" name="secret" type="password" autoComplete="off" placeholder="unchanged" />
  </Field>
);

/** The secret of the sender, and for any HMAC, how the signature is sent. */
const SecretFields = ({ isHmac }: { isHmac: boolean }) => (
  <>
    <Field name="Secret" hint="The secret that the sender signs with.">
      <input className="input mono" name="secret" type="password" autoComplete="off" required />
    </Field>
    {isHmac && (
      <>
        <Field name="Header with the signature">
          <input className="input mono" name="header" placeholder="X-Signature" required />
        </Field>
        <Field name="Hash function">
          <select className="input" name="algorithm" defaultValue="sha256">
            {["sha1", "sha256", "sha512"].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </Field>
        <Field name="Encoding">
          <select className="input" name="encoding" defaultValue="hex">
            <option>hex</option>
            <option>base64</option>
          </select>
        </Field>
        <Field name="Text before the signature" isOptional>
          <input className="input mono" name="prefix" placeholder="sha256=" />
        </Field>
      </>
    )}
  </>
);

/** Returns the body of the request that creates or changes a source. */
function readSource(given: FormData, scheme: string) {
  const read = (name: string): string => readField(given, name);
  const prefix = read("prefix");
  const hmac = {
    header: read("header"),
    algorithm: read("algorithm"),
    encoding: read("encoding"),
    ...(prefix !== "" && { prefix }),
  };
  const verification =
    scheme === "none" ? null : { scheme, secret: read("secret"), ...(scheme === "hmac" && hmac) };
  return {
    name: read("name"),
    destination: read("destination"),
    settings: readPairs(read("settings")),
    deduplicate: given.has("deduplicate"),
    keepsRejected: given.has("keepsRejected"),
    ...(scheme !== "keep" && { verification }),
  };
}
