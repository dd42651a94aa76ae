import { GraphiQL } from "graphiql";
import { useMemo, useState, type FormEvent } from "react";

import flame from "./flame.svg";
import { fetcherWith } from "./fetcher";
import { TABS } from "./tabs";
import { handedOver, remember, remembered } from "./token";

export function Page() {
  const given = handedOver();
  const [token, setToken] = useState(given ?? remembered());
  const fetcher = useMemo(() => fetcherWith(token), [token]);
  return (
    <>
      {given === null && <TokenField token={token} onChange={setToken} />}
      <GraphiQL
        key={token} // with another token, the schema is asked for anew
        schema={token ? undefined : null} // null: it is not asked for
        fetcher={fetcher}
        defaultTabs={TABS}
        defaultTheme={themeOfTheDashboard()}
        defaultEditorToolsVisibility="variables"
        showPersistHeadersSettings={false} // a token typed there is not written to disk
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

/** What was chosen there, until something is chosen here; null is what the system says. */
function themeOfTheDashboard(): "light" | "dark" | null {
  const chosen = localStorage.getItem("pilotlight.theme");
  return chosen === "light" || chosen === "dark" ? chosen : null;
}

function TokenField({ token, onChange }: { token: string; onChange: (token: string) => void }) {
  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const entered = String(new FormData(event.currentTarget).get("token")).trim();
    remember(entered);
    onChange(entered);
  }
  return (
    <form className="token" onSubmit={submit}>
      <label htmlFor="token">Token</label>
      <input id="token" name="token" type="password" placeholder="pl_…" autoComplete="off" defaultValue={token} />
      <button type="submit">Use</button>
      {!token && <span>Without one, the API answers nothing.</span>}
    </form>
  );
}
