import { GraphiQL } from "graphiql";
import { useMemo, useState, type FormEvent } from "react";

import { fetcherWith } from "./fetcher";
import { TABS } from "./tabs";
import { handedOver, remember, remembered } from "./token";

export function Page() {
  const given = handedOver();
  const [token, setToken] = useState(given ?? remembered());
  const fetcher = useMemo(() => fetcherWith(token), [token]);
  return (
    <>
      <header>
        <a href="/">← Pilotlight</a>
        {given === null && <TokenField token={token} onChange={setToken} />}
      </header>
      {/* The key: with another token the schema is asked for anew. */}
      <GraphiQL key={token} fetcher={fetcher} defaultTabs={TABS} defaultEditorToolsVisibility="variables">
        <GraphiQL.Logo>
          <span className="name">GraphiQL</span>
        </GraphiQL.Logo>
      </GraphiQL>
    </>
  );
}

function TokenField({ token, onChange }: { token: string; onChange: (token: string) => void }) {
  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const entered = String(new FormData(event.currentTarget).get("token")).trim();
    remember(entered);
    onChange(entered);
  }
  return (
    <form onSubmit={submit}>
      <label htmlFor="token">Token</label>
      <input id="token" name="token" type="password" placeholder="pl_…" autoComplete="off" defaultValue={token} />
      <button type="submit">Use</button>
    </form>
  );
}
