import { PageLink } from "../../parts/link.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { Page } from "../../shell/shell.tsx";
import { AuditLog } from "./audit.tsx";
import { Tokens } from "./tokens.tsx";

const parts = [
  { part: undefined, name: "Tokens" },
  { part: "audit", name: "Audit log" },
] as const;

/** The settings of the account: its tokens and its audit log. */
export function SettingsPage() {
  const { values } = useFilters();
  const part = values["part"];
  return (
    <Page title="Settings">
      <div className="settings">
        <nav className="nav" aria-label="Settings">
          {parts.map(({ part: one, name }) => (
            <PageLink
              key={name}
              to="/settings"
              search={{ part: one }}
              {...(one === part && { marks: "exact" as const })}
            >
              {name}
            </PageLink>
          ))}
        </nav>
        <div className="stackl">{part === "audit" ? <AuditLog /> : <Tokens />}</div>
      </div>
    </Page>
  );
}
