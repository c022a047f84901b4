import type { ReactNode } from "react";
import { PageLink } from "../../parts/link.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { Page } from "../../shell/shell.tsx";
import { Alerts } from "../../operations/alerts/alerts.tsx";
import { AuditLog } from "../../operations/auditLog/auditLog.tsx";
import { PulledOrigins } from "./pulledOrigins.tsx";
import { SigningKeys } from "./signingKeys.tsx";
import { Limits } from "./limits.tsx";
import { Tokens } from "./tokens.tsx";
import { Usage } from "../../operations/statistics/usage.tsx";

const parts = [
  { part: undefined, name: "Tokens" },
  { part: "keys", name: "Signing keys" },
  { part: "pulled", name: "Pulled origins" },
  { part: "alerts", name: "Alerts" },
  { part: "limits", name: "Limits" },
  { part: "usage", name: "Usage" },
  { part: "audit", name: "Audit log" },
] as const;

const shown: Readonly<Record<string, () => ReactNode>> = {
  keys: SigningKeys,
  pulled: PulledOrigins,
  alerts: Alerts,
  limits: Limits,
  usage: Usage,
  audit: AuditLog,
};

/** The settings of the account. */
export function SettingsPage() {
  const { values } = useFilters();
  const part = values["part"];
  const Part = shown[part ?? ""] ?? Tokens;
  return (
    <Page title="Settings">
      <div className="settings">
        <nav className="nav" aria-label="Settings">
          {parts.map(({ part: one, name }) => (
            <PageLink key={name} to="/settings" search={{ part: one }}>
              {name}
            </PageLink>
          ))}
        </nav>
        <div className="stackl">
          <Part />
        </div>
      </div>
    </Page>
  );
}
