import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { diffTexts } from "../../parts/diff.ts";
import { countHidden } from "../../parts/hidden.ts";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, readPairs, writePairs } from "../../parts/words.ts";
import { useToasts } from "../../shell/toasts.tsx";

type DeadLetter = Response<"GET /v2/dlq/{dlqId}">;
/** The parts of a message that a replay can change, as texts. */
type Draft = { url: string; headers: string; body: string };

const names: Record<keyof Draft, string> = { url: "URL", headers: "Headers", body: "Body" };
const parts = Object.keys(names) as (keyof Draft)[];

const toDraft = ({ url, header, body = "" }: DeadLetter): Draft => ({
  url,
  headers: writePairs(header),
  body,
});

/** Changes a dead letter and publishes it as a new message. Shows the differences before it is sent. */
export function Replay({ of, close }: { of: DeadLetter; close(): void }) {
  const before = toDraft(of);
  const [draft, setDraft] = useState(before);
  const { say } = useToasts();
  const changed = parts.filter((part) => draft[part] !== before[part]);
  const hiddenCount = countHidden(draft.body);
  const body = toRequest(draft, changed);
  const params = { dlqId: of.dlqId };
  const replay = async (): Promise<void> => {
    const { messageId } = await send("POST /v2/dlq/{dlqId}/replay", { params, body });
    say(`Published as ${messageId}`, { place: { to: "/messages", search: { open: messageId } } });
  };
  const set = (change: Partial<Draft>): void => setDraft({ ...draft, ...change });
  return (
    <FormDialog title="Change and retry" verb="Publish" close={close} act={replay} isWide>
      <Field name="URL">
        <input
          className="input mono"
          type="url"
          required
          value={draft.url}
          onChange={(event) => set({ url: event.target.value })}
        />
      </Field>
      <Field name="Headers" hint="One header per line. They replace all headers of the message.">
        <textarea
          className="input mono"
          rows={4}
          spellCheck={false}
          value={draft.headers}
          onChange={(event) => set({ headers: event.target.value })}
        />
      </Field>
      {of.bodyBase64 === undefined ? (
        <Field
          name="Body"
          {...(hiddenCount > 0 && { hint: `Hidden characters in this text: ${formatCount(hiddenCount)}.` })}
        >
          <textarea
            className="input mono"
            rows={8}
            spellCheck={false}
            value={draft.body}
            onChange={(event) => set({ body: event.target.value })}
          />
        </Field>
      ) : (
        <p className="muted">The body is not text. It is sent unchanged.</p>
      )}
      <section aria-label="Changes" className="diffs">
        <h3>Changes</h3>
        {changed.length === 0 && <p className="muted">None. The message is sent as it was.</p>}
        {changed.map((part) => (
          <Diff key={part} name={names[part]} before={before[part]} after={draft[part]} />
        ))}
        <p className="note">The dead letter stays, and links to the new message.</p>
      </section>
      <AsCode of={{ method: "POST", path: `/v2/dlq/${encodeURIComponent(of.dlqId)}/replay`, json: body }} />
    </FormDialog>
  );
}

/** Returns the body of the request: only the parts that change. */
const toRequest = ({ url, headers, body }: Draft, changed: readonly (keyof Draft)[]) => ({
  ...(changed.includes("url") && { url }),
  ...(changed.includes("headers") && { headers: readPairs(headers) }),
  ...(changed.includes("body") && { body }),
});

const marks = { same: " ", removed: "−", added: "+" } as const;

const Diff = ({ name, before, after }: { name: string; before: string; after: string }) => (
  <figure>
    <figcaption>{name}</figcaption>
    <pre className="diff" tabIndex={0} aria-label={`Changes of ${name}`}>
      {diffTexts(before, after).map(({ kind, text }, at) => (
        <span key={at} className={kind}>
          {marks[kind]} <Visible text={text} />
        </span>
      ))}
    </pre>
  </figure>
);
