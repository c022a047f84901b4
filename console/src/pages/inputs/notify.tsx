import { Bell } from "lucide-react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { useToasts } from "../../shell/toasts.tsx";

/** A button that sends an event to the runs that wait for it. Not shown if the session may not. */
export function NotifyButton({ eventId }: { eventId: string }) {
  const may = useMay();
  const [isOpen, setIsOpen] = useState(false);
  if (!may.manage) return null;
  return (
    <>
      <Button isSmall icon={Bell} onClick={() => setIsOpen(true)}>
        Notify
      </Button>
      {isOpen && <NotifyForm eventId={eventId} close={() => setIsOpen(false)} />}
    </>
  );
}

/** Sends an event to all runs that wait for it. */
function NotifyForm({ eventId, close }: { eventId: string; close(): void }) {
  const [body, setBody] = useState("");
  const { say } = useToasts();
  const notify = async (): Promise<void> => {
    await send("POST /v2/notify/{eventId}", { params: { eventId }, body });
    say(`Event ${eventId} is sent`);
  };
  return (
    <FormDialog title={`Notify ${eventId}`} verb="Notify" close={close} act={notify}>
      <p>All runs that wait for this event continue with this data.</p>
      <Field name="Data" isOptional>
        <textarea
          className="input mono"
          rows={4}
          spellCheck={false}
          value={body}
          onChange={(event) => setBody(event.target.value)}
        />
      </Field>
      <AsCode
        of={{
          method: "POST",
          path: `/v2/notify/${encodeURIComponent(eventId)}`,
          body: body === "" ? undefined : body,
        }}
      />
    </FormDialog>
  );
}
