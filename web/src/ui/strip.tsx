// The strip above every view: whose machines these are, and what is wrong at the moment.
import { connection } from "../api/subscriptions.ts";
import { status } from "../live/status.ts";
import { troubles } from "../live/troubles.ts";
import { viewer } from "../live/viewer.ts";
import { Shape } from "./chip.tsx";
import { Until } from "./since.tsx";

export function Strip() {
  const current = status.value;
  return (
    <header class="strip">
      <p class="account">
        {current?.provider.isSimulator && (
          <>
            <strong class="tag simulator">SIMULATOR</strong> <span>nothing is billed</span>
          </>
        )}
        {current && !current.provider.isSimulator && (
          <>
            <strong class="tag">Novita account</strong> <span>{current.provider.host}</span>
          </>
        )}
        {viewer.value && (
          <span class="muted">
            project {viewer.value.project.name}, token {viewer.value.token.name}
          </span>
        )}
      </p>
      <div role="status" aria-label="Problems">
        {connection.value.phase === "waiting" && (
          <p class="trouble bad">
            <Shape tone="bad" />
            Not connected to the server: what is shown may be out of date.
          </p>
        )}
        {current &&
          troubles(current).map((each) => (
            <p key={each.key} class={`trouble ${each.tone}`}>
              <Shape tone={each.tone} />
              <span>
                {each.text}
                {each.until && (
                  <>
                    {" "}
                    Next try <Until at={each.until} />.
                  </>
                )}
              </span>
            </p>
          ))}
      </div>
    </header>
  );
}
