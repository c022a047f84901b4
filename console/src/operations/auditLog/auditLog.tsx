import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Id, Time } from "../../parts/basics.tsx";
import { TwoLines, Whole } from "../../parts/cells.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";

type Entry = Response<"GET /v2/audit">["entries"][number];

/** The audit log of the account. */
export function AuditLog() {
  const { values } = useFilters();
  const audit = useRead("GET /v2/audit", { query: { count: 50, cursor: values["cursor"] } });
  return (
    <Loaded query={audit} what="The audit log">
      {({ entries, cursor }) => (
        <ListPanel
          label="Audit log"
          title="Audit log"
          sub="all changes, newest first"
          className="two cards"
          columns={columns}
          rows={entries}
          keyOf={({ id }) => id}
          words={["entry", "entries"]}
          cursor={cursor}
          empty={<Empty title="No changes yet" />}
        />
      )}
    </Loaded>
  );
}

/** The names of the ways in which a caller proves its identity. */
const kinds: Readonly<Record<Entry["by"]["kind"], string>> = {
  token: "a token",
  password: "a password",
  operator: "the operator",
  commandLine: "the command line",
  server: "the server",
};

/** Returns the name of a caller: that of its user or of its token. */
const nameActor = ({ kind, user, token, tokenName }: Entry["by"]): string =>
  user ?? tokenName ?? (token === "main" ? "main token" : (token ?? kinds[kind]));

/** The id of a token that is shown by its name, or how a user proved its identity. */
const Actor = ({ by: { kind, user, token, tokenName } }: { by: Entry["by"] }) =>
  tokenName !== undefined && token !== undefined ? (
    <Id id={token} />
  ) : user !== undefined ? (
    <span className="t">{kinds[kind]}</span>
  ) : null;

const columns: readonly Column<Entry>[] = [
  {
    head: "Action",
    className: "c-what w-tok",
    cell: ({ action }) => <span className="host">{action}</span>,
  },
  {
    head: "Object",
    className: "c-why",
    cell: ({ object, objectName, count, fields }) => (
      <TwoLines
        first={<Whole text={objectName ?? object ?? "the account"} />}
        second={
          <Whole
            text={[objectName && object, count !== undefined && `${count} in total`, fields?.join(", ")]
              .filter(Boolean)
              .join(" · ")}
          />
        }
      />
    ),
  },
  {
    head: "By",
    className: "c-more w-tok",
    cell: ({ by }) => <TwoLines first={<Whole text={nameActor(by)} />} second={<Actor by={by} />} />,
  },
  { head: "From", className: "p3 w-where mono", cell: ({ by }) => by.address ?? "" },
  { head: "When", className: "num time c-when w-m", cell: ({ time }) => <Time at={time} /> },
];
