import { useQueryClient } from "@tanstack/react-query";
import { RotateCw, Unplug } from "lucide-react";
import { useEffect, useState } from "react";
import { Trouble } from "../api/client.ts";
import { Button, Icon, Time } from "../parts/basics.tsx";

/** Returns since when the data of the page is old because the server does not respond. Null if it responds. */
export function useLost(): number | null {
  const client = useQueryClient();
  const [since, setSince] = useState<number | null>(null);
  useEffect(
    () =>
      client.getQueryCache().subscribe(({ query, type }) => {
        if (type !== "updated") return;
        const { status, dataUpdatedAt } = query.state;
        const reason: unknown = query.state.fetchFailureReason ?? query.state.error;
        if (reason instanceof Trouble && reason.status === 0)
          setSince((known) => known ?? (dataUpdatedAt || Date.now()));
        else if (status === "success" && reason === null) setSince(null);
      }),
    [client],
  );
  return since;
}

/** A warning if the server does not respond, with the age of the data on the page. */
export function NoConnection() {
  const client = useQueryClient();
  const since = useLost();
  return since === null ? null : (
    <section className="callout bad" role="alert">
      <Icon of={Unplug} />
      <div>
        <h2>The server does not respond</h2>
        <p>
          This page shows the state of <Time at={since} />. It retries automatically. Accepted messages are
          safe.
        </p>
      </div>
      <div className="actions">
        <Button icon={RotateCw} onClick={() => void client.refetchQueries({ type: "active" })}>
          Try now
        </Button>
      </div>
    </section>
  );
}
