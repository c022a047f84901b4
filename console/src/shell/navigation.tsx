import { PageLink } from "../parts/link.tsx";
import { BookOpen, ChevronDown, CircleQuestionMark, Sun } from "lucide-react";
import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import { consoleBase } from "../api/client.ts";
import { pace, useRead } from "../api/queries.ts";
import { useSession } from "../api/session.ts";
import { Button, Icon } from "../parts/basics.tsx";
import { AccountMenu } from "./account.tsx";
import { Mark } from "./brand.tsx";
import type { PlaceCount } from "./placeCounts.ts";
import { usePlaceCounts } from "./placeCounts.ts";
import type { Place } from "./places.ts";
import { operatorPlace, places } from "./places.ts";
import { toggleTheme } from "./theme.ts";
import { Visible } from "../parts/visible.tsx";
import { formatMany } from "../parts/words.ts";

/** The navigation: all pages, the account, help and the theme. */
export function Navigation({ help, isOpen, close }: { help(): void; isOpen: boolean; close(): void }) {
  const { session } = useSession();
  const side = useRef<HTMLElement>(null);
  const countOf = usePlaceCounts();
  useEffect(() => {
    if (!isOpen) return;
    const menu = document.querySelector<HTMLElement>("#menu");
    side.current?.querySelector("a")?.focus();
    const leave = (event: Event): void => {
      const isInside = event.target instanceof Node && side.current?.contains(event.target);
      if (
        event instanceof KeyboardEvent
          ? event.key !== "Escape"
          : isInside || menu?.contains(event.target as Node)
      )
        return;
      close();
      menu?.focus();
    };
    document.addEventListener("keydown", leave);
    document.addEventListener("pointerdown", leave);
    return () => {
      document.removeEventListener("keydown", leave);
      document.removeEventListener("pointerdown", leave);
    };
  }, [isOpen, close]);
  return (
    <nav id="side" ref={side} className={`side ${isOpen ? "open" : ""}`} aria-label="Main" onClick={close}>
      <PageLink className="brand" to="/">
        <Mark />
        Waypost
      </PageLink>
      <Account />
      {places.map(({ title, pages }) => (
        <Group key={pages[0]?.to} title={title} count={title === null ? null : countOf(title)}>
          {pages.map((place) => (
            <PlaceLink key={place.to} place={place} count={countOf(place.to)} />
          ))}
        </Group>
      ))}
      {session.operator && (
        <div className="nav">
          <PlaceLink place={operatorPlace} count={null} />
        </div>
      )}
      <div className="nav">
        {/* The pages of the documentation are built for this path, whatever the prefix of the console. */}
        <a href={new URL("/docs/", consoleBase).href} target="_blank" rel="noreferrer">
          <Icon of={BookOpen} />
          Documentation
        </a>
      </div>
      <Version />
      <div className="side-foot">
        <Person />
        <Button kind="ghost" isSmall icon={CircleQuestionMark} label="Keys (?)" onClick={help} />
        <Button kind="ghost" isSmall icon={Sun} label="Light or dark" onClick={toggleTheme} />
      </div>
    </nav>
  );
}

const PlaceLink = ({ place, count }: { place: Place; count: PlaceCount | null }) => (
  <PageLink to={place.to} marks={place.to === "/" ? "exact" : "below"}>
    <Icon of={place.icon} />
    {place.name}
    <Count count={count} />
  </PageLink>
);

const Count = ({ count }: { count: PlaceCount | null }) =>
  count && <span className={`n ${count.isBad ? "bad" : ""}`}>{count.text}</span>;

type GroupProps = { title: string | null; count: PlaceCount | null; children: ReactNode };

/** Pages below a title. A screen reader reads the title and the count as the name of the group. */
const Group = ({ title, count, children }: GroupProps) =>
  title === null ? (
    <div className="nav">{children}</div>
  ) : (
    <div className="nav" role="group" aria-label={count ? `${title}: ${count.text}` : title}>
      <p className="title" aria-hidden="true">
        {title}
        <Count count={count} />
      </p>
      {children}
    </div>
  );

function Account() {
  const { session } = useSession();
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        className="account"
        aria-haspopup="dialog"
        onClick={(event) => {
          event.stopPropagation();
          setIsOpen(true);
        }}
      >
        <b className="ellipsis">{session.account?.name ?? "No account"}</b>
        {session.rights === "read" && <span className="sub">read-only</span>}
        <Icon of={ChevronDown} size="s" />
      </button>
      <AccountMenu isOpen={isOpen} close={() => setIsOpen(false)} />
    </>
  );
}

/** The version of the server and, for the operator, how many servers run. */
function Version() {
  const { session } = useSession();
  const found = useRead("GET /v2/admin/nodes", {}, { every: pace.slow, enabled: session.operator });
  const running = found.data?.nodes.filter(({ state }) => state === "running" || state === "unknown").length;
  return (
    session.version !== null && (
      <p className="side-version">
        <span className="ellipsis">
          <Visible text={session.version} />
        </span>
        {running !== undefined && `, ${formatMany(running, "node")}`}
      </p>
    )
  );
}

function Person() {
  const { session } = useSession();
  const opener = {
    password: "password",
    main: "main token",
    readOnly: "read-only token",
    token: "token",
    operator: "operator",
  };
  return (
    <div>
      <b className="ellipsis">
        <Visible text={session.name || "Signed in"} />
      </b>
      {session.openedWith ? `with ${opener[session.openedWith]}` : session.operator ? "as the operator" : ""}
    </div>
  );
}
