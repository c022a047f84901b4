import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode, useEffect, useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { whenSessionEnds } from "./api/client.ts";
import { queryClient } from "./api/queries.ts";
import type { NewCredentials, Session } from "./api/session.ts";
import { hasCode, readSession, SessionContext } from "./api/session.ts";
import { LoginPage } from "./pages/login.tsx";
import { ShowCredentials } from "./pages/settings/credentials.tsx";
import { Button } from "./parts/basics.tsx";
import { Empty } from "./parts/trouble.tsx";
import { router } from "./router.tsx";
import "./styles/tokens.css";
import "./styles/console.css";
import "./styles/more.css";
import "./styles/runs.css";
import "./styles/narrow.css";
import "./styles/wrapping.css";

const signedOut: Omit<Session, "hasOperator"> = {
  account: null,
  rights: null,
  name: "",
  openedWith: null,
  expiresAt: null,
  operator: false,
  version: null,
};

/** The console: the login until there is a session, and then the pages. */
function Console() {
  const [session, setSession] = useState<Session | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [replaced, setReplaced] = useState<NewCredentials | null>(null);
  const load = async (): Promise<void> => {
    setError(null);
    try {
      setSession(await readSession());
    } catch (reason) {
      setError(reason instanceof Error ? reason.message : "");
    }
  };
  useEffect(() => void load(), []);
  useEffect(() => {
    // An address with a code that is opened in this tab changes only the part after the #.
    const opened = (): void => {
      if (!hasCode()) return;
      queryClient.clear();
      void load();
    };
    window.addEventListener("hashchange", opened);
    return () => window.removeEventListener("hashchange", opened);
  }, []);
  useEffect(() => {
    whenSessionEnds(() => {
      queryClient.clear();
      setSession((known) => known && { ...signedOut, hasOperator: known.hasOperator });
    });
  }, []);
  const value = useMemo(
    () => (session ? { session, setSession, showCredentials: setReplaced } : null),
    [session],
  );
  const leaveCredentials = (): void => {
    queryClient.clear();
    // The pages of the ended session are not shown again, and an operator's session continues.
    void load().then(() => setReplaced(null));
  };
  if (replaced) return <ShowCredentials of={replaced} close={leaveCredentials} />;
  if (error !== null)
    return (
      <div className="login">
        <Empty
          title="The console cannot reach its server"
          actions={<Button onClick={() => void load()}>Try again</Button>}
        >
          <p>{error}</p>
        </Empty>
      </div>
    );
  if (!value) return null;
  const isIn = value.session.account !== null || value.session.operator;
  return (
    <SessionContext value={value}>{isIn ? <RouterProvider router={router} /> : <LoginPage />}</SessionContext>
  );
}

const root = document.querySelector("#root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <Console />
      </QueryClientProvider>
    </StrictMode>,
  );
