import { toMessage } from "../parts/words.ts";
import { RotateCw, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { Trouble } from "../api/client.ts";
import { Button, CopyButton, Icon } from "./basics.tsx";

/** Nothing is here: what it is, how it would come, and one thing to do. */
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
    <h2>{title}</h2>
    {children}
    {actions && <div className="actions">{actions}</div>}
  </div>
);

const readStatus = (error: unknown): number => (error instanceof Trouble ? error.status : -1);

function advise(status: number): string {
  if (status === 0) return "The page tries again by itself. Nothing on the server is lost.";
  if (status === 403) return "This session does not have the right. Log in with another credential.";
  if (status === 404) return "It may have ended: the log keeps what happened.";
  if (status === 429) return "The page tries again by itself in a few seconds.";
  if (status >= 500) return "The page tries again by itself. The log of the server says more.";
  return "Change what the text names, and try again.";
}

/** Something could not be read: what happened, what holds now, and what to do. */
export function Failed({ what, error, retry }: { what: string; error: unknown; retry?: () => void }) {
  const text = toMessage(error);
  const status = readStatus(error);
  return (
    <div className="empty" role="alert">
      <h2>{what} could not be read</h2>
      <p>
        {status > 0 && <b>{status} </b>}
        {text}. {advise(status)}
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

/** A change was refused: said where it was asked for. */
export const Refused = ({ error }: { error: unknown }) =>
  error ? (
    <div className="callout bad" role="alert">
      <Icon of={TriangleAlert} />
      <div>
        <h3>The server refused</h3>
        <p>{toMessage(error)}</p>
      </div>
    </div>
  ) : null;

/** Rows that are still to come. They appear only after a moment, so that a fast answer does not flicker. */
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
