import { apiBase } from "../../api/client.ts";
import { PublishLink } from "../../parts/link.tsx";
import { CopyButton } from "../../parts/basics.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Empty } from "../../parts/trouble.tsx";

/** One call that publishes the first message. Shown while the log is empty. */
export function FirstMessage() {
  const url = apiBase.href.replace(/\/$/, "");
  const call = [
    `curl -X POST ${url}/v2/publish/https://example.com/hello \\`,
    '  -H "Authorization: Bearer $TOKEN" \\',
    '  -H "Content-Type: application/json" \\',
    `  -d '{"hello": "world"}'`,
  ].join("\n");
  return (
    <Panel>
      <Empty title="No messages yet" actions={<PublishLink text="Publish with a form" />}>
        <p>Publish one with a single call. It appears here at once, with the reason if it waits.</p>
        <div className="code">
          <pre tabIndex={0}>{call}</pre>
          <span className="copy">
            <CopyButton text={call} />
          </span>
        </div>
        <p className="muted">
          Set <code>$TOKEN</code> to the token of your account first.
        </p>
      </Empty>
    </Panel>
  );
}
