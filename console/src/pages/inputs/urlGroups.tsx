import { Plus, Trash2, X } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { Confirm, Dialog, useAction } from "../../parts/dialog.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Empty, Refused } from "../../parts/trouble.tsx";
import { formatMany, readField } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";

type Group = Response<"GET /v2/topics">[number];

/** The URL groups with their endpoints. A message to a group goes to each of them. */
export function UrlGroupsPage() {
  const groups = useRead("GET /v2/topics");
  const may = useMay();
  const [isNew, setIsNew] = useState(false);
  return (
    <Page title="URL groups" count={groups.data && formatMany(groups.data.length, "group")}>
      {may.manage && (
        <div className="toolbar">
          <span className="spring" />
          <Button icon={Plus} onClick={() => setIsNew(true)}>
            New group
          </Button>
        </div>
      )}
      <Loaded query={groups} what="The URL groups">
        {(rows) =>
          rows.length === 0 ? (
            <Panel>
              <Empty title="No URL groups yet">
                <p>A message that is published to a group is delivered to each of its endpoints.</p>
              </Empty>
            </Panel>
          ) : (
            <div className="stackl">
              {rows.map((group) => (
                <GroupPanel key={group.name} group={group} />
              ))}
            </div>
          )
        }
      </Loaded>
      {isNew && <EndpointForm close={() => setIsNew(false)} />}
    </Page>
  );
}

function GroupPanel({ group: { name, endpoints, updatedAt } }: { group: Group }) {
  const may = useMay();
  const act = useDo();
  const [open, setOpen] = useState<"add" | "delete" | null>(null);
  const change = useChange((run: () => Promise<unknown>) => run());
  const params = { name };
  return (
    <Panel
      title={name}
      sub={
        <>
          changed <Time at={updatedAt} />
        </>
      }
      end={
        may.manage && (
          <>
            <Button
              isSmall
              kind="ghost"
              icon={Trash2}
              label={`Delete group ${name}`}
              onClick={() => setOpen("delete")}
            />
            <Button isSmall icon={Plus} onClick={() => setOpen("add")}>
              Add endpoint
            </Button>
          </>
        )
      }
    >
      <ul className="body stack">
        {endpoints.map((endpoint) => (
          <li key={`${endpoint.name ?? ""} ${endpoint.url}`} className="l1">
            {endpoint.name !== undefined && <span className="chip">{endpoint.name}</span>}
            <Url url={endpoint.url} />
            <span className="grow" />
            {may.manage && (
              <Button
                isSmall
                kind="ghost"
                icon={X}
                label={`Remove ${endpoint.name ?? endpoint.url}`}
                onClick={() =>
                  void act(
                    () =>
                      change.mutateAsync(() =>
                        send("DELETE /v2/topics/{name}/endpoints", {
                          params,
                          body: { endpoints: [endpoint] },
                        }),
                      ),
                    "The endpoint is removed",
                    () =>
                      change.mutateAsync(() =>
                        send("POST /v2/topics/{name}/endpoints", { params, body: { endpoints: [endpoint] } }),
                      ),
                  )
                }
              />
            )}
          </li>
        ))}
      </ul>
      {open === "add" && <EndpointForm group={name} close={() => setOpen(null)} />}
      <Confirm
        title={`Delete group ${name}`}
        verb="Delete group"
        isOpen={open === "delete"}
        close={() => setOpen(null)}
        act={() => change.mutateAsync(() => send("DELETE /v2/topics/{name}", { params }))}
      >
        <p>Messages to the group are refused from then on.</p>
      </Confirm>
    </Panel>
  );
}

function EndpointForm({ group, close }: { group?: string; close(): void }) {
  const { error, isBusy, run } = useAction();
  const add = useChange((given: { group: string; url: string; name: string }) =>
    send("POST /v2/topics/{name}/endpoints", {
      params: { name: given.group },
      body: { endpoints: [{ url: given.url, ...(given.name !== "" && { name: given.name }) }] },
    }),
  );
  const submit = (event: SyntheticEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const given = {
      group: group ?? readField(form, "group"),
      url: readField(form, "url"),
      name: readField(form, "name"),
    };
    if (!isBusy) void run(() => add.mutateAsync(given)).then((isDone) => isDone && close());
  };
  return (
    <Dialog title={group === undefined ? "New URL group" : `Add to ${group}`} isOpen close={close}>
      <form onSubmit={submit}>
        <div className="dialog-body">
          {group === undefined && (
            <label className="field">
              <span className="label">Name of the group</span>
              <input className="input" name="group" required autoFocus />
            </label>
          )}
          <label className="field">
            <span className="label">URL</span>
            <input className="input mono" name="url" type="url" placeholder="https://…" required />
          </label>
          <label className="field">
            <span className="label">
              Name of the endpoint <span className="sub">optional</span>
            </span>
            <input className="input" name="name" />
          </label>
          <Refused error={error} />
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={isBusy}>
            Add endpoint
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
