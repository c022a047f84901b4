import type { Response } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { compareCounts, formatCount } from "../../parts/words.ts";

type Busy = Response<"GET /v2/admin/activity">["accounts"][number];

/** The accounts with the most messages in the last minutes. */
export function BusyAccounts() {
  const found = useRead("GET /v2/admin/activity", {}, { every: pace.slow });
  return (
    <Loaded query={found} what="The busiest accounts" rows={1}>
      {({ accounts }) => (
        <ListPanel
          label="Busiest accounts"
          title="Busiest accounts"
          sub="in the last 15 minutes, compared with the 15 minutes before"
          className="cards"
          columns={columns}
          rows={accounts}
          keyOf={({ accountId }) => accountId}
          empty={<Empty title="No account has published in the last 15 minutes" />}
        />
      )}
    </Loaded>
  );
}

const columns: readonly Column<Busy>[] = [
  { head: "Account", className: "c-what", cell: ({ name }) => <Visible text={name} /> },
  { head: "Messages", className: "num c-when w-m", cell: ({ messages }) => formatCount(messages) },
  {
    head: "Before",
    className: "num c-more w-s",
    cell: ({ messages, messagesBefore }) => (
      <span title={`${formatCount(messagesBefore)} in the 15 minutes before`}>
        {compareCounts(messages, messagesBefore)}
      </span>
    ),
  },
  { head: "Delivered", className: "num p2 w-m", cell: ({ delivered }) => formatCount(delivered) },
  { head: "Failed", className: "num p1 w-s", cell: ({ failed }) => formatCount(failed) },
  { head: "In flight", className: "num p2 w-s", cell: ({ inFlight }) => formatCount(inFlight) },
  {
    head: "Held",
    className: "num c-more w-s",
    cell: ({ held, heldMore }) => `${formatCount(held)}${heldMore ? "+" : ""}`,
  },
];
