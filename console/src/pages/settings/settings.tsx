import { Plus } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, CopyButton, Id, Time } from "../../parts/basics.tsx";
import { Confirm, Dialog, useAction } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Pager, useFilters } from "../../parts/filters.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty, Refused } from "../../parts/trouble.tsx";
import { formatMany, readField } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";

type Token = Response<"GET /v2/tokens">["tokens"][number];
type Entry = Response<"GET /v2/audit">["entries"][number];

const parts = [
  { part: undefined, name: "Tokens" },
  { part: "audit", name: "Audit log" },
] as const;

/** The settings of the account: its tokens, and who changed what. */
export function SettingsPage() {
  const { values } = useFilters();
  const part = values["part"];
  return (
    <Page title="Settings">
      <div className="settings">
        <nav className="nav" aria-label="Settings">
          {parts.map(({ part: one, name }) => (
            <PageLink
              key={name}
              to="/settings"
              search={{ part: one }}
              {...(one === part && { marks: "exact" as const })}
            >
              {name}
            </PageLink>
          ))}
        </nav>
        <div className="stackl">{part === "audit" ? <Audit /> : <Tokens />}</div>
      </div>
    </Page>
  );
}

function Tokens() {
  const tokens = useRead("GET /v2/tokens", { query: { count: 100 } });
  const may = useMay();
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState<{ name: string; token: string } | null>(null);
  return (
    <>
      {made && (
        <section className="callout good" role="status">
          <span />
          <div>
            <h2>Token “{made.name}” is created</h2>
            <p>Copy it now: it is not shown again.</p>
            <div className="secret">
              <code>{made.token}</code>
              <CopyButton text={made.token}>Copy</CopyButton>
            </div>
          </div>
        </section>
      )}
      <Loaded query={tokens} what="The tokens">
        {({ tokens: rows }) => (
          <Panel
            title="Tokens of this account"
            sub="besides its main and its read-only token"
            end={
              may.manage && (
                <Button isSmall icon={Plus} onClick={() => setIsNew(true)}>
                  New token
                </Button>
              )
            }
          >
            {rows.length === 0 ? (
              <Empty title="No further tokens">
                <p>Give each program a token with only the rights that it needs.</p>
              </Empty>
            ) : (
              <Table
                label="Tokens"
                className="two cards"
                columns={tokenColumns}
                rows={rows}
                keyOf={({ tokenId }) => tokenId}
              />
            )}
          </Panel>
        )}
      </Loaded>
      {isNew && <TokenForm close={() => setIsNew(false)} done={setMade} />}
    </>
  );
}

const tokenColumns: readonly Column<Token>[] = [
  {
    head: "Token",
    className: "c-what w-tok",
    cell: ({ name, tokenId }) => (
      <>
        <div className="l1 host">{name || "without a name"}</div>
        <div className="l2">
          <Id id={tokenId} />
        </div>
      </>
    ),
  },
  {
    head: "May",
    className: "c-why w-verbs",
    cell: ({ verbs }) =>
      verbs.map((verb) => (
        <span key={verb} className="chip">
          {verb}
        </span>
      )),
  },
  {
    head: "Publishes to",
    className: "p2 mono",
    cell: ({ destinations, verbs }) =>
      destinations.length > 0 ? destinations.join(", ") : verbs.includes("publish") ? "everywhere" : "",
  },
  {
    head: "Used",
    className: "num time p3 w-m",
    cell: ({ usedAt }) => (usedAt === undefined ? "never" : <Time at={usedAt} />),
  },
  {
    head: "Ends",
    className: "num time p2 w-m",
    cell: ({ expiresAt }) => (expiresAt === undefined ? "never" : <Time at={expiresAt} />),
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act",
    cell: (token) => <Revoke token={token} />,
  },
];

function Revoke({ token: { tokenId, name } }: { token: Token }) {
  const may = useMay();
  const [isAsking, setIsAsking] = useState(false);
  const revoke = useChange(() => send("DELETE /v2/tokens/{tokenId}", { params: { tokenId } }));
  return may.manage ? (
    <>
      <Button isSmall kind="danger" onClick={() => setIsAsking(true)}>
        Revoke
      </Button>
      <Confirm
        title={`Revoke token ${name || tokenId}`}
        verb="Revoke token"
        isOpen={isAsking}
        close={() => setIsAsking(false)}
        act={() => revoke.mutateAsync(undefined)}
      >
        <p>Requests and sessions with it are refused at once.</p>
      </Confirm>
    </>
  ) : null;
}

const verbs = ["publish", "read", "manage"] as const;

function TokenForm({ close, done }: { close(): void; done(made: { name: string; token: string }): void }) {
  const { error, isBusy, run } = useAction();
  const create = useChange((body: object) => send("POST /v2/tokens", { body }));
  const submit = (event: SyntheticEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const name = readField(form, "name");
    const expires = readField(form, "expires");
    const destinations = readField(form, "destinations")
      .split(/[\s,]+/)
      .filter(Boolean);
    const body = {
      name,
      verbs: verbs.filter((verb) => form.has(verb)),
      ...(destinations.length > 0 && { destinations }),
      ...(expires !== "" && { expires }),
    };
    if (isBusy) return;
    void run(async () => {
      const { token } = await create.mutateAsync(body);
      done({ name, token });
      close();
    });
  };
  return (
    <Dialog title="New token" isOpen close={close}>
      <form onSubmit={submit}>
        <div className="dialog-body">
          <label className="field">
            <span className="label">Name</span>
            <input className="input" name="name" required autoFocus />
          </label>
          {verbs.map((verb) => (
            <label key={verb} className="choice">
              <input className="check" type="checkbox" name={verb} defaultChecked={verb === "publish"} />
              {verb}
            </label>
          ))}
          <label className="field">
            <span className="label">Publishes only to</span>
            <input
              className="input mono"
              name="destinations"
              placeholder="https://example.com/*, queue:parcels"
            />
            <span className="hint">Empty: everywhere.</span>
          </label>
          <label className="field">
            <span className="label">Ends after</span>
            <input className="input mono" name="expires" placeholder="30d" />
            <span className="hint">Empty: never.</span>
          </label>
          <Refused error={error} />
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={isBusy}>
            Create token
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

function Audit() {
  const { values } = useFilters();
  const audit = useRead("GET /v2/audit", { query: { count: 50, cursor: values["cursor"] } });
  return (
    <Loaded query={audit} what="The audit log">
      {({ entries, cursor }) => (
        <Panel
          title="Audit log"
          sub="who changed what, latest first"
          footer={
            <>
              <span>{formatMany(entries.length, "entry", "entries")}</span>
              <Pager cursor={cursor} />
            </>
          }
        >
          {entries.length === 0 ? (
            <Empty title="Nothing was changed yet" />
          ) : (
            <Table
              label="Audit log"
              className="cards"
              columns={auditColumns}
              rows={entries}
              keyOf={({ id }) => id}
            />
          )}
        </Panel>
      )}
    </Loaded>
  );
}

const auditColumns: readonly Column<Entry>[] = [
  {
    head: "Action",
    className: "c-what w-verbs",
    cell: ({ action }) => <span className="host">{action}</span>,
  },
  {
    head: "Object",
    className: "c-why",
    cell: ({ object, count, fields }) =>
      [object ?? "the account", count !== undefined && `and others, ${count} in all`, fields?.join(", ")]
        .filter(Boolean)
        .join(" · "),
  },
  {
    head: "By",
    className: "p1 w-run",
    cell: ({ by }) =>
      [by.user, by.kind, by.token !== undefined && by.token !== "main" && by.token]
        .filter(Boolean)
        .join(" · "),
  },
  { head: "From", className: "p3 w-where mono", cell: ({ by }) => by.address ?? "" },
  { head: "When", className: "num time c-when w-m", cell: ({ time }) => <Time at={time} /> },
];
