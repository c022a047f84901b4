import { Eye, EyeOff, RotateCw } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, CopyButton } from "../../parts/basics.tsx";
import { Confirm } from "../../parts/dialog.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";

type Keys = Response<"GET /v2/keys">;

/** The signing keys of the account, and their rotation. */
export function SigningKeys() {
  const found = useRead("GET /v2/keys", {}, { every: null });
  return (
    <Loaded query={found} what="The signing keys" rows={4}>
      {(keys) => <KeysPanel keys={keys} />}
    </Loaded>
  );
}

function KeysPanel({ keys: { current, next, standardWebhooks } }: { keys: Keys }) {
  const may = useMay();
  const [isAsking, setIsAsking] = useState(false);
  const rows = [
    { name: "Current", secret: current },
    { name: "Next", secret: next },
    ...(standardWebhooks
      ? [
          { name: "Current, as Standard Webhooks", secret: standardWebhooks.current },
          { name: "Next, as Standard Webhooks", secret: standardWebhooks.next },
        ]
      : []),
  ];
  return (
    <Panel
      title="Signing keys"
      sub="receivers verify deliveries with them"
      end={
        may.manage && (
          <Button isSmall icon={RotateCw} onClick={() => setIsAsking(true)}>
            Rotate
          </Button>
        )
      }
    >
      <dl className="body kv">
        {rows.map(({ name, secret }) => (
          <Secret key={name} name={name} secret={secret} />
        ))}
      </dl>
      {isAsking && <Rotate close={() => setIsAsking(false)} />}
    </Panel>
  );
}

/** A secret that is shown on demand. */
function Secret({ name, secret }: { name: string; secret: string }) {
  const [isShown, setIsShown] = useState(false);
  return (
    <div className="pair">
      <dt>{name}</dt>
      <dd className="secret">
        <code>{isShown ? secret : "•".repeat(24)}</code>
        <Button
          isSmall
          kind="ghost"
          icon={isShown ? EyeOff : Eye}
          label={`${isShown ? "Hide" : "Show"}: ${name}`}
          onClick={() => setIsShown(!isShown)}
        />
        <CopyButton text={secret} label={`Copy: ${name}`} />
      </dd>
    </div>
  );
}

function Rotate({ close }: { close(): void }) {
  const [isForced, setIsForced] = useState(false);
  const query = isForced ? { force: "true" } : {};
  return (
    <Confirm
      title="Rotate signing keys"
      verb="Rotate"
      close={close}
      act={() => send("POST /v2/keys/rotate", { query })}
    >
      <p>
        The next key becomes the current key, and a new key becomes the next key. Receivers with the present
        pair can verify deliveries until the keys are rotated a second time.
      </p>
      <label className="choice">
        <input className="check" type="checkbox" checked={isForced} onChange={() => setIsForced(!isForced)} />
        Rotate even if the last rotation was less than 24 hours ago
      </label>
    </Confirm>
  );
}
