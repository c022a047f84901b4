import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Failed, SkeletonRows } from "./trouble.tsx";
import { Visible } from "./visible.tsx";

type PanelProps = {
  title?: string;
  sub?: ReactNode;
  end?: ReactNode;
  footer?: ReactNode;
  className?: string;
  children: ReactNode;
};

/** A part of a page with an edge. */
export const Panel = ({ title, sub, end, footer, className = "", children }: PanelProps) => (
  <section className={`panel ${className}`} {...(title !== undefined && { "aria-label": title })}>
    {title !== undefined && (
      <header>
        <h2>
          <Visible text={title} />
        </h2>
        {sub && <span className="sub">{sub}</span>}
        {end && <div className="end">{end}</div>}
      </header>
    )}
    {children}
    {footer && <footer>{footer}</footer>}
  </section>
);

type LoadedProps<T> = {
  query: UseQueryResult<T>;
  what: string;
  rows?: number;
  children(data: T): ReactNode;
};

/** The data of a query, a skeleton while it loads, or its error. Old data stays while the query loads again. */
export function Loaded<T>({ query, what, rows, children }: LoadedProps<T>) {
  const { data, error, isPending, refetch } = query;
  if (data !== undefined && !(error && query.isPlaceholderData)) return children(data);
  if (error) return <Failed what={what} error={error} retry={() => void refetch()} />;
  return isPending ? (
    <div aria-busy="true" aria-label={`Loading: ${what}`}>
      <SkeletonRows {...(rows !== undefined && { rows })} />
    </div>
  ) : null;
}
