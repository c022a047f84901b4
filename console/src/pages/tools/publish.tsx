import { Send } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { Codes } from "../../parts/codes.tsx";
import { useAction } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Empty, Refused } from "../../parts/trouble.tsx";
import { Page } from "../../shell/shell.tsx";

/** A setting of a message: its header, its name for people, and an example. */
type Setting = { header: string; title: string; hint?: string; wide?: boolean };

const groups: readonly { title: string; about: string; settings: readonly Setting[] }[] = [
  {
    title: "When",
    about: "by default, immediately",
    settings: [
      { header: "Svc-Delay", title: "Delay", hint: "30s, 10m, 1d12h" },
      { header: "Svc-Not-Before", title: "Not before", hint: "Unix seconds" },
      { header: "Svc-Cron", title: "Schedule", hint: "30 6 * * 1-5" },
    ],
  },
  {
    title: "If it fails",
    about: "after the last retry, it becomes a dead letter",
    settings: [
      { header: "Svc-Retries", title: "Retries", hint: "3" },
      { header: "Svc-Timeout", title: "Timeout", hint: "30s" },
      { header: "Svc-Retry-Delay", title: "Retry delay, in ms", hint: "1000 * (1 + retried)" },
      { header: "Svc-Callback", title: "Callback", hint: "https://…", wide: true },
      { header: "Svc-Failure-Callback", title: "Failure callback", hint: "https://…", wide: true },
    ],
  },
  {
    title: "Flow control",
    about: "parallelism and rate",
    settings: [
      { header: "Svc-Flow-Control-Key", title: "Flow control key" },
      { header: "Svc-Flow-Control-Value", title: "Limits", hint: "parallelism=2, rate=10, period=1m" },
    ],
  },
  {
    title: "Deduplication and search",
    about: "optional",
    settings: [
      { header: "Svc-Deduplication-Id", title: "Deduplication id" },
      { header: "Svc-Label", title: "Label" },
    ],
  },
];

type Draft = {
  method: string;
  destination: string;
  body: string;
  type: string;
  queue: string;
  settings: Readonly<Record<string, string>>;
};

const empty: Draft = {
  method: "POST",
  destination: "",
  body: "",
  type: "application/json",
  queue: "",
  settings: {},
};

/** Returns the headers of a publish. An empty field is not sent. */
const toHeaders = ({ method, type, settings }: Draft): Record<string, string> => ({
  ...(type !== "" && { "Content-Type": type }),
  ...(method !== "POST" && { "Svc-Method": method }),
  ...Object.fromEntries(Object.entries(settings).filter(([, value]) => value.trim() !== "")),
});

/** Publishes one message, and shows the request as code. */
export function PublishPage() {
  const may = useMay();
  return (
    <Page title="Publish" isLive={false}>
      {may.publish ? (
        <PublishForm />
      ) : (
        <Panel>
          <Empty title="This session cannot publish">
            <p>Log in with the account’s password, the main token, or a token with the verb publish.</p>
          </Empty>
        </Panel>
      )}
    </Page>
  );
}

function PublishForm() {
  const [draft, setDraft] = useState(empty);
  const { error, isBusy, run } = useAction();
  const [done, setDone] = useState<string | null>(null);
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    setDone(null);
    if (!isBusy) void run(async () => setDone(await publishDraft(draft)));
  };
  const { destination, queue, body } = draft;
  const path = `/v2/${queue === "" ? "publish" : `enqueue/${encodeURIComponent(queue)}`}/${destination || "https://example.com/"}`;
  return (
    <div className="split">
      <form className="panel form" onSubmit={submit}>
        <WhereTo draft={draft} set={(change) => setDraft({ ...draft, ...change })} />
        {groups.map(({ title, about, settings }) => (
          <fieldset key={title}>
            <legend>
              {title}
              <small>{about}</small>
            </legend>
            <div className="fields">
              {settings.map(({ header, title: name, hint, wide }) => (
                <label key={header} className={`field ${wide ? "" : "h3"}`}>
                  <span className="label">{name}</span>
                  <input
                    className="input mono"
                    placeholder={hint}
                    value={draft.settings[header] ?? ""}
                    onChange={(event) =>
                      setDraft({ ...draft, settings: { ...draft.settings, [header]: event.target.value } })
                    }
                  />
                </label>
              ))}
            </div>
          </fieldset>
        ))}
        <div className="dialog-body">
          <Refused error={error} />
          {done !== null && <Published id={done} />}
          <div className="actions">
            <Button kind="primary" type="submit" icon={Send} disabled={isBusy}>
              Publish
            </Button>
          </div>
        </div>
      </form>
      <div className="stick">
        <Panel title="As code">
          <div className="body">
            <Codes of={{ method: "POST", path, headers: toHeaders(draft), ...(body !== "" && { body }) }} />
          </div>
        </Panel>
      </div>
    </div>
  );
}

function WhereTo({ draft, set }: { draft: Draft; set(change: Partial<Draft>): void }) {
  const queues = useRead("GET /v2/queues", {}, { every: null });
  return (
    <fieldset>
      <legend>
        Where to<small>a URL, or the name of a URL group</small>
      </legend>
      <div className="fields">
        <div className="field">
          <span className="label">Destination</span>
          <div className="joined">
            <select
              className="input fit"
              aria-label="Method"
              value={draft.method}
              onChange={(event) => set({ method: event.target.value })}
            >
              {["POST", "GET", "PUT", "PATCH", "DELETE"].map((method) => (
                <option key={method}>{method}</option>
              ))}
            </select>
            <input
              className="input mono"
              aria-label="Destination"
              placeholder="https://example.com/hook"
              value={draft.destination}
              onChange={(event) => set({ destination: event.target.value })}
              required
            />
          </div>
        </div>
        <label className="field">
          <span className="label">Body</span>
          <textarea
            className="input"
            rows={6}
            spellCheck={false}
            value={draft.body}
            onChange={(event) => set({ body: event.target.value })}
          />
        </label>
        <label className="field h3">
          <span className="label">Content type</span>
          <input
            className="input mono"
            value={draft.type}
            onChange={(event) => set({ type: event.target.value })}
          />
        </label>
        <label className="field h3">
          <span className="label">Queue</span>
          <select
            className="input"
            value={draft.queue}
            onChange={(event) => set({ queue: event.target.value })}
          >
            <option value="">none</option>
            {queues.data?.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
    </fieldset>
  );
}

/** Publishes the message, or creates the schedule if there is a cron expression. Returns its id. */
async function publishDraft(draft: Draft): Promise<string> {
  const { destination, queue, body } = draft;
  const headers = toHeaders(draft);
  if (headers["Svc-Cron"] !== undefined) {
    const sent = { ...headers, ...(queue !== "" && { "Svc-Queue-Name": queue }) };
    const made = await send("POST /v2/schedules/{destination}", {
      params: { destination },
      headers: sent,
      body,
    });
    return made.scheduleId;
  }
  const [result] = await send("POST /v2/batch", {
    body: [{ destination, headers, ...(body !== "" && { body }), ...(queue !== "" && { queue }) }],
  });
  const [first] = [result].flat();
  if (!first || !("messageId" in first))
    throw new Error(first && "error" in first ? first.error : "nothing was published");
  return first.messageId;
}

const Published = ({ id }: { id: string }) => (
  <section className="callout good" role="status">
    <span />
    <div>
      <h3>{id.startsWith("msg_") ? "Published" : "The schedule is created"}</h3>
      <p>
        {id.startsWith("msg_") ? (
          <PageLink className="link" to="/messages" search={{ open: id }}>
            {id}
          </PageLink>
        ) : (
          <PageLink className="link" to="/schedules">
            {id}
          </PageLink>
        )}
      </p>
    </div>
  </section>
);
