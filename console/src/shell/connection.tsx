import type { QueryClient } from "@tanstack/react-query";
import { useQueryClient } from "@tanstack/react-query";
import { RotateCw, Unplug } from "lucide-react";
import { useEffect, useState } from "react";
import { Trouble } from "../api/client.ts";
import { Button, Icon, Time } from "../parts/basics.tsx";

/** Reports whether the server does not respond to the reads of the page. */
export function useLost(): boolean {
  const client = useQueryClient();
  const [isLost, setIsLost] = useState(false);
  useEffect(
    () =>
      client.getQueryCache().subscribe((event) => {
        if (event.type !== "updated") return;
        const { action } = event;
        // A read that begins says nothing yet about the server. An error of the server is a response.
        if (action.type === "success") setIsLost(false);
        else if ("error" in action && action.error instanceof Trouble) setIsLost(action.error.status === 0);
      }),
    [client],
  );
  return isLost;
}

/** Returns when the oldest data on the page was read. Null: the page has no data yet. */
function readAge(client: QueryClient): number | null {
  const times = client
    .getQueryCache()
    .findAll({ type: "active" })
    .map(({ state }) => state.dataUpdatedAt)
    .filter((time) => time > 0);
  return times.length === 0 ? null : Math.min(...times);
}

/** A warning if the server does not respond, with the age of the data on the page. */
export function NoConnection() {
  const client = useQueryClient();
  const isLost = useLost();
  if (!isLost) return null;
  const since = readAge(client);
  return (
    <section className="callout bad" role="alert">
      <Icon of={Unplug} />
      <div>
        <h2>The server does not respond</h2>
        <p>
          {since !== null && (
            <>
              This page shows the state of <Time at={since} />.{" "}
            </>
          )}
          It retries automatically. Accepted messages are safe.
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
