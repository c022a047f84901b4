import { Navigate, Outlet, useRouterState } from "@tanstack/react-router";
import { Menu, Search, Send } from "lucide-react";
import type { ReactNode, RefObject } from "react";
import { createContext, use, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { useMay, useSession } from "../api/session.ts";
import { Button, Icon } from "../parts/basics.tsx";
import { PageLink } from "../parts/link.tsx";
import { Panel } from "../parts/panel.tsx";
import { Empty } from "../parts/trouble.tsx";
import { commandKey, KeyHelp, useShellKeys } from "./shortcuts.tsx";
import { LiveContext, useLive } from "./live.ts";
import { Navigation } from "./navigation.tsx";
import { NoConnection, useLost } from "./connection.tsx";
import { Palette } from "./palette.tsx";
import type { Opened } from "./search.ts";
import { SearchContext } from "./search.ts";
import { ToastProvider } from "./toasts.tsx";
import { Visible } from "../parts/visible.tsx";

/** Where the open drawer is shown: beside the page. */
const DrawerContext = createContext<HTMLElement | null>(null);

/** Shows something in the drawer beside the page. */
export function InDrawer({ children }: { children: ReactNode }) {
  const place = use(DrawerContext);
  return place ? createPortal(children, place) : null;
}

/** The frame of every page. */
export function Shell() {
  const [open, setOpen] = useState<"help" | "menu" | null>(null);
  const [searched, setSearched] = useState<Opened | null>(null);
  const [drawer, setDrawer] = useState<HTMLElement | null>(null);
  const [isPaused, setIsPaused] = useState(false);
  const [frozen, setFrozen] = useState<string | null>(null);
  const live = useMemo(
    () => ({ isLive: !isPaused && frozen === null, isPaused, frozen, pause: setIsPaused, freeze: setFrozen }),
    [isPaused, frozen],
  );
  const { session } = useSession();
  // The page that is shown, which is not yet that of the address while the next one loads.
  const path = useRouterState({ select: ({ matches }) => matches.at(-1)?.pathname ?? "" });
  const hasAccount = session.account !== null || path.endsWith("/operator");
  const close = useCallback(() => setOpen(null), []);
  const closeMenu = useCallback(() => setOpen((now) => (now === "menu" ? null : now)), []);
  const search = useCallback((text = "", from?: string) => {
    setOpen(null);
    setSearched({ text, ...(from !== undefined && { from }) });
  }, []);
  const endSearch = useCallback(() => setSearched(null), []);
  const help = useCallback(() => setOpen("help"), []);
  const pause = useCallback(() => setIsPaused((paused) => !paused), []);
  useShellKeys({ search, help, pause });
  return (
    <LiveContext value={live}>
      <ToastProvider>
        <DrawerContext value={drawer}>
          <a className="skip" href="#content">
            Skip to content
          </a>
          <div className="app">
            <Navigation help={help} isOpen={open === "menu"} close={closeMenu} />
            <div className="main">
              <TopContext
                value={{
                  search: () => search(),
                  menu: () => setOpen((now) => (now === "menu" ? null : "menu")),
                  isMenu: open === "menu",
                }}
              >
                <SearchContext value={search}>
                  {hasAccount ? <Outlet /> : <NoAccount isFirst={path === "/" || path === ""} />}
                </SearchContext>
              </TopContext>
            </div>
            <div className="drawer-place" ref={setDrawer} />
          </div>
          <Palette opened={searched} close={endSearch} />
          <KeyHelp isOpen={open === "help"} close={close} />
        </DrawerContext>
      </ToastProvider>
    </LiveContext>
  );
}

const TopContext = createContext({
  search: () => undefined as void,
  menu: () => undefined as void,
  isMenu: false,
});

type PageProps = {
  title: string;
  crumbs?: ReactNode;
  count?: ReactNode;
  isLive?: boolean;
  /** Whether the page never changes again. */
  isFinal?: boolean;
  children: ReactNode;
};

/** A page: its head and its content. */
export function Page({ title, crumbs, count, isLive = true, isFinal = false, children }: PageProps) {
  const { search, menu, isMenu } = use(TopContext);
  const content = useRef<HTMLElement>(null);
  usePageFocus(content);
  const may = useMay();
  const { session } = useSession();
  useEffect(() => {
    document.title = `${title} · ${session.account?.name ?? "Waypost"}`;
  }, [title, session.account?.name]);
  return (
    <>
      <header className="top">
        <Button
          kind="ghost"
          icon={Menu}
          label="Menu"
          id="menu"
          aria-expanded={isMenu}
          aria-controls="side"
          onClick={menu}
        />
        {crumbs ? (
          <div className="crumbs">
            {crumbs}
            <h1>
              <Visible text={title} />
            </h1>
          </div>
        ) : (
          <h1>
            <Visible text={title} />
          </h1>
        )}
        {count !== undefined && <span className="count only-wide">{count}</span>}
        <span className="spring" />
        <button type="button" className="find" onClick={search} title="Search or paste an id">
          <Icon of={Search} />
          <span>Search or paste an id</span>
          <span className="keys" aria-hidden="true">
            <kbd>{commandKey}</kbd>
            <kbd>K</kbd>
          </span>
        </button>
        {isLive && <LiveButton isFinal={isFinal} />}
        {may.publish && isLive && (
          <PageLink className="btn primary" to="/publish">
            <Icon of={Send} />
            Publish
          </PageLink>
        )}
      </header>
      <main className="page" id="content" tabIndex={-1} ref={content}>
        <NoConnection />
        {children}
      </main>
    </>
  );
}

/** Whether a page has been shown already. The first one leaves the focus at the start of the document. */
let isLater = false;

/** Moves the focus to the content of each further page, so that a screen reader and the keyboard continue there. */
function usePageFocus(content: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const { activeElement } = document;
    const isFree = activeElement?.closest("main, aside, dialog") === null;
    if (isLater && isFree) content.current?.focus({ preventScroll: true });
    isLater = true;
  }, [content]);
}

/** Shows whether the page updates automatically. A press pauses or resumes it. A final page leaves its place empty. */
function LiveButton({ isFinal }: { isFinal: boolean }) {
  const { isPaused, frozen, pause } = useLive();
  const isLost = useLost();
  const text = frozen ?? (isPaused ? "Paused" : isLost ? "No connection" : "Live");
  const look = frozen !== null || isPaused ? "frozen" : isLost ? "off" : "";
  return (
    <button
      type="button"
      className={`live ${look} ${isFinal ? "gone" : ""}`}
      aria-pressed={isPaused}
      title={isPaused ? "Resume updates (p)" : "Pause updates (p)"}
      onClick={() => pause(!isPaused)}
    >
      <span>{text}</span>
    </button>
  );
}

/** The operator has not chosen an account yet. The first page leads to the accounts. */
const NoAccount = ({ isFirst }: { isFirst: boolean }) =>
  isFirst ? (
    <Navigate to="/operator" replace />
  ) : (
    <Page title="No account" isLive={false}>
      <Panel>
        <Empty
          title="Choose an account"
          actions={
            <PageLink className="btn primary" to="/operator">
              Accounts
            </PageLink>
          }
        >
          <p>
            You are signed in as the operator. Every other page shows one account. Its audit log records that
            you switch to it.
          </p>
        </Empty>
      </Panel>
    </Page>
  );
