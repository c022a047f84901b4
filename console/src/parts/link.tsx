import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useMay } from "../api/session.ts";

type PageLinkProps = {
  to: string;
  search?: Readonly<Record<string, string | undefined>>;
  className?: string;
  title?: string;
  /**
   * Marks the link while its page is shown, whatever the filters are. `exact`: not while a page below it is
   * shown. Without it, the link is marked while the page is shown with the same parameters.
   */
  marks?: "exact" | "below";
  children: ReactNode;
};

/** A link to a page of the console. Its address is text, because parts of it may be names that people chose. */
export const PageLink = ({ search = {}, marks, ...rest }: PageLinkProps) => (
  <Link
    {...rest}
    search={search}
    activeOptions={marks ? { exact: marks === "exact", includeSearch: false } : { explicitUndefined: true }}
  />
);

/** The first thing to do where nothing is yet: publish. Not shown if the session may not. */
export function PublishLink({ text = "Publish a message", kind }: { text?: string; kind?: string }) {
  return useMay().publish ? (
    <PageLink className="btn" to="/publish" search={kind === undefined ? {} : { kind }}>
      {text}
    </PageLink>
  ) : null;
}
