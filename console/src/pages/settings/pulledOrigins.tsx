import { Plus } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button } from "../../parts/basics.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { readField } from "../../parts/words.ts";

type PulledOrigin = Response<"GET /v2/pulled">["origins"][number];

/** The origins whose messages clients pull. */
export function PulledOrigins() {
  const found = useRead("GET /v2/pulled", {});
  const may = useMay();
  const [isNew, setIsNew] = useState(false);
  return (
    <>
      <Loaded query={found} what="The pulled origins">
        {({ origins }) => (
          <ListPanel
            label="Pulled origins"
            title="Pulled origins"
            sub="their messages wait until a client pulls them"
            end={
              may.manage && (
                <Button isSmall icon={Plus} onClick={() => setIsNew(true)}>
                  New pulled origin
                </Button>
              )
            }
            columns={columns}
            rows={origins}
            keyOf={({ origin }) => origin}
            empty={
              <Empty title="No pulled origins yet">
                <p>Declare the origin of workers that cannot be reached over HTTP.</p>
              </Empty>
            }
          />
        )}
      </Loaded>
      {isNew && <OriginForm close={() => setIsNew(false)} />}
    </>
  );
}

const columns: readonly Column<PulledOrigin>[] = [
  { head: "Origin", className: "c-what mono", cell: ({ origin }) => <Visible text={origin} /> },
  {
    head: "Messages",
    className: "p2",
    cell: ({ origin }) => (
      <PageLink to="/messages" search={{ host: new URL(origin).host }}>
        unfinished messages
      </PageLink>
    ),
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act",
    cell: ({ origin }) => (
      <ConfirmButton
        title={`Remove ${origin}`}
        verb="Remove origin"
        text="Remove"
        kind="danger"
        act={() => send("DELETE /v2/pulled", { query: { origin } })}
      >
        <p>
          Waiting messages are then sent to it. Attempts that clients hold stay held, and can be reported.
        </p>
      </ConfirmButton>
    ),
  },
];

/** Declares a pulled origin. */
function OriginForm({ close }: { close(): void }) {
  const declare = (filled: FormData): Promise<unknown> =>
    send("PUT /v2/pulled", { body: { origin: readField(filled, "origin") } });
  return (
    <FormDialog title="New pulled origin" verb="Declare origin" close={close} act={declare}>
      <Field
        name="Origin"
        hint="Messages to it are no longer sent. They wait for a client, such as waypost connect."
      >
        <input
          className="input mono"
          name="origin"
          placeholder="https://worker.internal"
          required
          autoFocus
        />
      </Field>
    </FormDialog>
  );
}
