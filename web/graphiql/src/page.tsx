/** The page: GraphiQL with our tabs and fetcher, and a token field where the server provided no token. */

import { GraphiQL } from "graphiql";
import { useMemo, useState, type FormEvent } from "react";

import flame from "./flame.svg";
import { createFetcher } from "./fetcher";
import { TABS } from "./tabs";
import { storedToken, storeToken, tokenInPage } from "./token";

export function Page() {
  const provided = tokenInPage();
  const [token, setToken] = useState(provided ?? storedToken());
  const fetcher = useMemo(() => createFetcher(token), [token]);
  return (
    <>
      {provided === null && <TokenField token={token} onChange={setToken} />}
      <GraphiQL
        key={token} // another token loads the schema again
        schema={token ? undefined : null} // null: do not load it
        fetcher={fetcher}
        defaultTabs={TABS}
        {...firstVariables()}
        defaultTheme={dashboardTheme()}
        defaultEditorToolsVisibility="variables"
        showPersistHeadersSettings={false} // so that a token typed there is not written to disk
      >
        <GraphiQL.Logo>
          <a className="home" href="/" title="Back to the dashboard">
            <img src={flame} alt="" /> Pilotlight
          </a>
        </GraphiQL.Logo>
      </GraphiQL>
    </>
  );
}

/**
 * On a first visit GraphiQL fills the editor with the first tab's query, but not with its variables, and the first
 * press of Play would fail. Later visits restore what was there.
 */
function firstVariables(): { initialVariables?: string } {
  const isFirstVisit = localStorage.getItem("graphiql:tabState") === null;
  return isFirstVisit ? { initialVariables: TABS[0]?.variables ?? "" } : {};
}

/** The dashboard's theme is the default; null means the system's. */
function dashboardTheme(): "light" | "dark" | null {
  const chosen = localStorage.getItem("pilotlight.theme");
  return chosen === "light" || chosen === "dark" ? chosen : null;
}

function TokenField({ token, onChange }: { token: string; onChange: (token: string) => void }) {
  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const entered = String(new FormData(event.currentTarget).get("token")).trim();
    storeToken(entered);
    onChange(entered);
  }
  return (
    <form className="token" onSubmit={submit}>
      <label htmlFor="token">Token</label>
      <input id="token" name="token" type="password" placeholder="pl_…" autoComplete="off" defaultValue={token} />
      <button type="submit">Use</button>
      {!token && <span>The API requires a token.</span>}
    </form>
  );
}
