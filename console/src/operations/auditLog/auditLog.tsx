import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Time } from "../../parts/basics.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";

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
          className="cards"
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

const columns: readonly Column<Entry>[] = [
  {
    head: "Action",
    className: "c-what w-verbs",
    cell: ({ action }) => <span className="host">{action}</span>,
  },
  {
    head: "Object",
    className: "c-why",
    cell: ({ object, count, fields }) => (
      <Visible
        text={[object ?? "the account", count !== undefined && `${count} in total`, fields?.join(", ")]
          .filter(Boolean)
          .join(" · ")}
      />
    ),
  },
  {
    head: "By",
    className: "p1 w-run",
    cell: ({ by }) => (
      <Visible
        text={[by.user, by.kind, by.token !== undefined && by.token !== "main" && by.token]
          .filter(Boolean)
          .join(" · ")}
      />
    ),
  },
  { head: "From", className: "p3 w-where mono", cell: ({ by }) => by.address ?? "" },
  { head: "When", className: "num time c-when w-m", cell: ({ time }) => <Time at={time} /> },
];
