import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { Button } from "../../parts/basics.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { readField } from "../../parts/words.ts";

/** Whose alerts: those of the account, or those about the server. */
export type AlertScope = "account" | "server";

/** The events that can cause an alert, with a description. */
const accountEvents = {
  "deadLetter.created": "a message became a dead letter",
  "host.failing": "a host fails",
  "host.hanging": "a host answers nothing",
  "host.recovered": "a host has recovered",
  "queue.blocked": "messages wait too long for a queue",
  "key.blocked": "messages wait too long for a flow-control key",
  "puller.missing": "no client pulls messages that wait",
  "schedule.late": "a schedule fires late",
  "schedule.refused": "a schedule could not publish",
  "schedule.failing": "the last message of a schedule failed for good",
  "source.rejecting": "a source rejects calls",
  "outbox.failing": "rows of an outbox wait because of an error",
  "outbox.rejecting": "an outbox rejects rows",
  "outbox.late": "rows of an outbox wait too long",
  "token.refused": "a token that is not valid any more is used",
  "publishes.dropped": "many publishes are refused or dropped",
  "storage.low": "the storage of the account is almost full",
  "disk.low": "the disk is almost full",
  "signingKey.rotated": "the signing keys were rotated",
} as const satisfies Record<Response<"GET /v2/alerts">["events"][number], string>;

const serverEvents = {
  "disk.low": "the disk of a server is almost full",
  "storage.low": "the storage of an account is almost full",
} as const satisfies Record<Response<"GET /v2/admin/alerts">["events"][number], string>;

type FormProps = {
  scope: AlertScope;
  setting: Response<"GET /v2/alerts"> | Response<"GET /v2/admin/alerts"> | undefined;
  close(): void;
};

/** Sets the URL that receives alerts. It replaces the whole setting. */
export function AlertForm({ scope, setting, close }: FormProps) {
  const events: Readonly<Record<string, string>> = scope === "account" ? accountEvents : serverEvents;
  const chosen: readonly string[] = setting?.events ?? Object.keys(events);
  const [secret, setSecret] = useState("");
  const save = async (given: FormData): Promise<void> => {
    const after = readField(given, "after");
    const body = {
      url: readField(given, "url"),
      events: Object.keys(events).filter((event) => given.has(event)),
      ...(after !== "" && { after: Number(after) * 60 }),
      ...(secret !== "" && { secret }),
    };
    await send(scope === "account" ? "PUT /v2/alerts" : "PUT /v2/admin/alerts", { body });
  };
  return (
    <FormDialog title="Alerts" verb="Save" close={close} act={save}>
      <Field name="URL" hint="It receives each alert as a POST request.">
        <input
          className="input mono"
          name="url"
          type="url"
          defaultValue={setting?.url}
          placeholder="https://…"
          required
          autoFocus
        />
      </Field>
      {scope === "account" && (
        <Field name="Alert after (minutes)" hint="How long a host fails or a message waits before an alert.">
          <input
            className="input"
            name="after"
            type="number"
            min={1}
            max={1440}
            defaultValue={setting && "after" in setting ? setting.after / 60 : 5}
          />
        </Field>
      )}
      <fieldset className="choices">
        <legend>Events</legend>
        {Object.entries(events).map(([event, words]) => (
          <label key={event} className="choice">
            <input className="check" type="checkbox" name={event} defaultChecked={chosen.includes(event)} />
            {words}
          </label>
        ))}
      </fieldset>
      <Field name="Secret" isOptional={scope === "account"} hint={aboutSecret(scope, setting)}>
        <input
          className="input mono"
          value={secret}
          onChange={(event) => setSecret(event.target.value)}
          placeholder="whsec_…"
          autoComplete="off"
          required={scope === "server"}
        />
      </Field>
      <div>
        <Button isSmall onClick={() => setSecret(makeSecret())}>
          Make a secret
        </Button>
      </div>
    </FormDialog>
  );
}

function aboutSecret(scope: AlertScope, setting: FormProps["setting"]): string {
  const again = setting ? " It is not kept: enter it again." : "";
  return scope === "server"
    ? `It signs the alerts by the rules of Standard Webhooks.${again}`
    : `Without it, the signing keys of the account sign the alerts.${again}`;
}

/** Returns a new secret of Standard Webhooks. */
const makeSecret = (): string =>
  `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))}`;
