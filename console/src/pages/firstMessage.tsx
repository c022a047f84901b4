import { apiBase } from "../api/client.ts";
import { useRead } from "../api/queries.ts";
import { CopyButton } from "../parts/basics.tsx";
import { Panel } from "../parts/panel.tsx";
import { Empty } from "../parts/trouble.tsx";

/** The first message, as one call to copy. Shown as long as the log is empty. */
export function FirstMessage() {
  const log = useRead("GET /v2/logs", { query: { count: 1 } });
  if (!log.data || log.data.events.length > 0) return null;
  const url = apiBase.href.replace(/\/$/, "");
  const call = [
    `curl -X POST ${url}/v2/publish/https://example.com/hello \\`,
    '  -H "Authorization: Bearer $TOKEN" \\',
    '  -H "Content-Type: application/json" \\',
    `  -d '{"hello": "world"}'`,
  ].join("\n");
  return (
    <Panel>
      <Empty title="No messages yet">
        <p>
          Publish one with a single call. It shows up here in a moment, and tells why it waits if it does.
        </p>
        <div className="code">
          <pre tabIndex={0}>{call}</pre>
          <span className="copy">
            <CopyButton text={call} />
          </span>
        </div>
        <p className="muted">
          Put the token of your account into <code>$TOKEN</code> first.
        </p>
      </Empty>
    </Panel>
  );
}
