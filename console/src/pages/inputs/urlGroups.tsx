import { Plus, Trash2, X } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send, toPath } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany, readField, readPairs, writePairs } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { Visible } from "../../parts/visible.tsx";

type Group = Response<"GET /v2/topics">[number];

/** The URL groups with their endpoints. A message to a group goes to each endpoint. */
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

function GroupPanel({ group }: { group: Group }) {
  const { name, endpoints, updatedAt } = group;
  const may = useMay();
  const [open, setOpen] = useState<"endpoint" | "settings" | null>(null);
  const close = (): void => setOpen(null);
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
            <ConfirmButton
              title={`Delete group ${name}`}
              verb="Delete group"
              icon={Trash2}
              act={() => send("DELETE /v2/topics/{name}", { params: { name } })}
            >
              <p>Messages to the group are refused from now on.</p>
            </ConfirmButton>
            <Button isSmall onClick={() => setOpen("settings")}>
              Settings
            </Button>
            <Button isSmall icon={Plus} onClick={() => setOpen("endpoint")}>
              Add endpoint
            </Button>
          </>
        )
      }
    >
      <ul className="body stack">
        {endpoints.map((endpoint) => (
          <EndpointRow key={`${endpoint.name ?? ""} ${endpoint.url}`} group={name} endpoint={endpoint} />
        ))}
      </ul>
      {open === "endpoint" && <EndpointForm group={name} close={close} />}
      {open === "settings" && <SettingsForm group={group} close={close} />}
    </Panel>
  );
}

function EndpointRow({ group, endpoint }: { group: string; endpoint: Group["endpoints"][number] }) {
  const may = useMay();
  const act = useDo();
  const sent = { params: { name: group }, body: { endpoints: [endpoint] } };
  const remove = () => send("DELETE /v2/topics/{name}/endpoints", sent);
  const add = () => send("POST /v2/topics/{name}/endpoints", sent);
  return (
    <li className="l1">
      {endpoint.name !== undefined && (
        <span className="chip">
          <Visible text={endpoint.name} />
        </span>
      )}
      <Url url={endpoint.url} />
      <span className="grow" />
      {may.manage && (
        <Button
          isSmall
          kind="ghost"
          icon={X}
          label={`Remove ${endpoint.name ?? endpoint.url}`}
          onClick={() => void act(remove, "The endpoint is removed", add)}
        />
      )}
    </li>
  );
}

/** The settings of every message to a group. They replace all previous ones. */
function SettingsForm({ group: { name, headers = {} }, close }: { group: Group; close(): void }) {
  const [text, setText] = useState(() => writePairs(headers));
  const params = { name };
  const body = { headers: readPairs(text) };
  return (
    <FormDialog
      title={`Settings of ${name}`}
      verb="Save"
      close={close}
      act={() => send("PATCH /v2/topics/{name}", { params, body })}
    >
      <Field
        name="Settings"
        hint="For every message to the group, one per line. A setting of the message itself takes precedence."
      >
        <textarea
          className="input mono"
          rows={5}
          spellCheck={false}
          placeholder="Svc-Retries: 5"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </Field>
      <AsCode of={{ method: "PATCH", path: toPath("PATCH /v2/topics/{name}", { params }), json: body }} />
    </FormDialog>
  );
}

function EndpointForm({ group, close }: { group?: string; close(): void }) {
  const add = (given: FormData) => {
    const name = readField(given, "name");
    return send("POST /v2/topics/{name}/endpoints", {
      params: { name: group ?? readField(given, "group") },
      body: { endpoints: [{ url: readField(given, "url"), ...(name !== "" && { name }) }] },
    });
  };
  return (
    <FormDialog
      title={group === undefined ? "New URL group" : `Add an endpoint to ${group}`}
      verb={group === undefined ? "Create group" : "Add endpoint"}
      close={close}
      act={add}
    >
      {group === undefined && (
        <Field name="Name of the group">
          <input className="input" name="group" required autoFocus />
        </Field>
      )}
      <Field name="URL">
        <input className="input mono" name="url" type="url" placeholder="https://…" required />
      </Field>
      <Field name="Name of the endpoint" isOptional>
        <input className="input" name="name" />
      </Field>
    </FormDialog>
  );
}
