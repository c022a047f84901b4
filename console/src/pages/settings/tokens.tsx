import { Plus } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button, Id, Time } from "../../parts/basics.tsx";
import { TwoLines } from "../../parts/cells.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { NewSecret } from "../../parts/secret.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { readField } from "../../parts/words.ts";
import { MainCredentials } from "./credentials.tsx";
import { Visible } from "../../parts/visible.tsx";

type Token = Response<"GET /v2/tokens">["tokens"][number];

/** The tokens of the account. */
export function Tokens() {
  const tokens = useRead("GET /v2/tokens", { query: { count: 100 } });
  const may = useMay();
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState<MadeToken | null>(null);
  return (
    <>
      {made && <ShowToken {...made} />}
      <Loaded query={tokens} what="The tokens">
        {({ tokens: rows }) => (
          <>
            <ListPanel
              label="Tokens"
              title="Tokens of this account"
              sub="in addition to the main and the read-only token"
              end={
                may.manage && (
                  <Button isSmall icon={Plus} onClick={() => setIsNew(true)}>
                    New token
                  </Button>
                )
              }
              columns={columns}
              rows={rows}
              keyOf={({ tokenId }) => tokenId}
              empty={
                <Empty title="No tokens yet">
                  <p>Give each program a token with only the rights that it needs.</p>
                </Empty>
              }
            />
            <MainCredentials />
          </>
        )}
      </Loaded>
      {isNew && <TokenForm close={() => setIsNew(false)} done={setMade} />}
    </>
  );
}

/** A token that was just created. */
export const ShowToken = ({ name, token }: MadeToken) => (
  <NewSecret title={`Token “${name}” is created`} secret={token}>
    Copy the token now. It is not shown again.
  </NewSecret>
);

const columns: readonly Column<Token>[] = [
  {
    head: "Token",
    className: "c-what w-tok",
    cell: ({ name, tokenId }) => (
      <TwoLines
        first={
          <span className="t host">
            <Visible text={name || "unnamed"} />
          </span>
        }
        second={<Id id={tokenId} />}
      />
    ),
  },
  {
    head: "Rights",
    className: "c-why w-verbs",
    cell: ({ verbs }) =>
      verbs.map((verb) => (
        <span key={verb} className="chip">
          {verb}
        </span>
      )),
  },
  {
    head: "Destinations",
    className: "p2 mono",
    cell: ({ destinations, verbs }) =>
      destinations.length > 0 ? (
        <Visible text={destinations.join(", ")} />
      ) : verbs.includes("publish") ? (
        "all"
      ) : (
        ""
      ),
  },
  {
    head: "Used",
    className: "num time p3 w-m",
    cell: ({ usedAt }) => (usedAt === undefined ? "never" : <Time at={usedAt} />),
  },
  {
    head: "Expires",
    className: "num time p2 w-m",
    cell: ({ expiresAt }) => (expiresAt === undefined ? "never" : <Time at={expiresAt} />),
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act",
    cell: ({ tokenId, name }) => (
      <ConfirmButton
        title={`Revoke token ${name || tokenId}`}
        verb="Revoke token"
        text="Revoke"
        kind="danger"
        act={() => send("DELETE /v2/tokens/{tokenId}", { params: { tokenId } })}
      >
        <p>Requests and sessions with this token are refused at once.</p>
      </ConfirmButton>
    ),
  },
];

const verbs = ["publish", "read", "manage", "receive"] as const;

/** A new token and its name. */
export type MadeToken = { name: string; token: string };

type Rights = { verbs: readonly string[]; destinations: readonly string[] };

/** The name of an earlier token, and its rights if they are known. */
export type Successor = { name: string; rights?: Rights | undefined };

type TokenFormProps = { of?: Successor | undefined; close(): void; done(made: MadeToken): void };

/** Creates a token. `of`: the token that it succeeds. */
export function TokenForm({ of, close, done }: TokenFormProps) {
  const given = of?.rights?.verbs ?? ["publish"];
  const create = async (filled: FormData): Promise<void> => {
    const name = readField(filled, "name");
    const expires = readField(filled, "expires");
    const destinations = readField(filled, "destinations")
      .split(/[\s,]+/)
      .filter(Boolean);
    const { token } = await send("POST /v2/tokens", {
      body: {
        name,
        verbs: verbs.filter((verb) => filled.has(verb)),
        ...(destinations.length > 0 && { destinations }),
        ...(expires !== "" && { expires }),
      },
    });
    done({ name, token });
  };
  return (
    <FormDialog title="New token" verb="Create token" close={close} act={create}>
      <Field name="Name">
        <input className="input" name="name" defaultValue={of?.name} required autoFocus />
      </Field>
      {verbs.map((verb) => (
        <label key={verb} className="choice">
          <input className="check" type="checkbox" name={verb} defaultChecked={given.includes(verb)} />
          {verb}
        </label>
      ))}
      <Field
        name="Destinations"
        isOptional
        hint="Without them, the token publishes to all destinations, and receives from all pulled origins. Requires publish or receive, and excludes manage."
      >
        <input
          className="input mono"
          name="destinations"
          defaultValue={of?.rights?.destinations.join(", ")}
          placeholder="https://example.com/*, queue:parcels"
        />
      </Field>
      <Field name="Expires after" isOptional hint="Empty: the token never expires.">
        <input className="input mono" name="expires" placeholder="30d" />
      </Field>
    </FormDialog>
  );
}
