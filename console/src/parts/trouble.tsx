import { RotateCw, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { Trouble } from "../api/client.ts";
import { Button, CopyButton, Icon } from "./basics.tsx";
import { toMessage } from "./words.ts";
import { Visible } from "./visible.tsx";

/** An empty list: what would be here, how it is created, and one action. */
export const Empty = ({
  title,
  children,
  actions,
}: {
  title: string;
  children?: ReactNode;
  actions?: ReactNode;
}) => (
  <div className="empty">
    <h2>
      <Visible text={title} />
    </h2>
    {children}
    {actions && <div className="actions">{actions}</div>}
  </div>
);

const readStatus = (error: unknown): number => (error instanceof Trouble ? error.status : -1);

function advise(status: number): string {
  if (status === 0) return "The page retries automatically. Nothing on the server is lost.";
  if (status === 403) return "This session does not have the right. Log in with another credential.";
  if (status === 404) return "It may have expired or been deleted. The log may still have it.";
  if (status === 429) return "The page retries automatically in a few seconds.";
  if (status >= 500) return "The page retries automatically. The log of the server has the details.";
  return "Correct it, and try again.";
}

/** An error of a read: what happened, and what to do. */
export function Failed({ what, error, retry }: { what: string; error: unknown; retry?: () => void }) {
  const text = toMessage(error);
  const status = readStatus(error);
  return (
    <div className="empty" role="alert">
      <h2>
        <Visible text={what} /> could not be read
      </h2>
      <p>
        {status > 0 && <b>{status} </b>}
        <Visible text={text} />. {advise(status)}
      </p>
      <div className="actions">
        {retry && (
          <Button icon={RotateCw} onClick={retry}>
            Try again
          </Button>
        )}
        <CopyButton text={`${what}: ${status} ${text}`}>Copy details</CopyButton>
      </div>
    </div>
  );
}

/** The reason why the server refused a change. */
export const Refused = ({ error }: { error: unknown }) =>
  error ? (
    <div className="callout bad" role="alert">
      <Icon of={TriangleAlert} />
      <div>
        <h3>The server refused</h3>
        <p>
          <Visible text={toMessage(error)} />
        </p>
      </div>
    </div>
  ) : null;

/** Placeholder rows. They appear after a moment, so that a fast response does not flicker. */
export const SkeletonRows = ({ rows = 8 }: { rows?: number }) => (
  <div className="skeleton" aria-hidden="true">
    {Array.from({ length: rows }, (_, at) => (
      <div key={at} className="skel-row">
        <span className="skel c" />
        <span className={`skel w${3 + (at % 3)}`} />
        <span className="skel w4" />
        <span className="skel w2" />
      </div>
    ))}
  </div>
);
