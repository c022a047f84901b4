import type { ReactNode } from "react";
import { Id, Url } from "./basics.tsx";
import type { Column } from "./table.tsx";
import { Visible } from "./visible.tsx";

/** A cell of two lines: the more important one first. */
export const TwoLines = ({ first, second }: { first: ReactNode; second: ReactNode }) => (
  <>
    <div className="l1">{first}</div>
    <div className="l2">{second}</div>
  </>
);

type MessageCellProps = {
  id: string;
  method: string;
  url: string;
  label?: string | undefined;
  children?: ReactNode;
};

/** A message in a list: its method and URL, then its id and its label. */
export const MessageCell = ({ id, method, url, label, children }: MessageCellProps) => (
  <TwoLines
    first={
      <>
        <span className="method">{method}</span>
        <Url url={url} />
      </>
    }
    second={
      <>
        <Id id={id} />
        {label !== undefined && <Shortened text={label} />}
        {children}
      </>
    }
  />
);

/** Why a delivery of a run has no response: its endpoint posted the next step before it responded. */
export const settledText = "settled by its next step";

/** Returns the error of an attempt, or nothing if it has only the status, which is shown already. */
export const withoutStatus = (
  error: string | null | undefined,
  status: number | undefined,
): string | undefined =>
  status !== undefined && error?.endsWith(` status ${status}`) ? undefined : (error ?? undefined);

/** A response, or the reason why there is none. */
type Responded = {
  responseStatus?: number | undefined;
  error?: string | null | undefined;
  responseBody?: string | undefined;
  settledBy?: "step" | undefined;
};

/** Returns the column with the last response. `isGood` reports whether a row is not a failure. */
export const responseColumn = <Row extends Responded>(
  isGood: (row: Row) => boolean = () => false,
): Column<Row> => ({
  head: "Response",
  className: "c-why w-why",
  cell: (row) => (
    <TwoLines
      first={
        <>
          {row.responseStatus !== undefined && (
            <b className={isGood(row) ? undefined : "code-bad"}>{row.responseStatus}</b>
          )}
          <Shortened text={row.settledBy ? settledText : withoutStatus(row.error, row.responseStatus)} />
        </>
      }
      second={<Shortened text={row.responseBody} />}
    />
  ),
});

/** The beginning of a string that a stranger may have written, in one line. */
export const Shortened = ({ text }: { text: string | null | undefined }) => (
  <span className="t" title={text || undefined}>
    <Visible text={(text ?? "").slice(0, 200)} />
  </span>
);

/** A name or a reason that wraps if it does not fit, because its end may be what a person looks for. */
export const Whole = ({ text, isName = false }: { text: string; isName?: boolean }) => (
  <span className={`t whole ${isName ? "host" : ""}`} title={text || undefined}>
    <Visible text={text.slice(0, 500)} />
  </span>
);
