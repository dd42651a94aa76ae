// The connection status, with the time of the next retry.
import { connection, reconnectNow } from "../api/subscriptions.ts";
import { now } from "../live/now.ts";

export function ConnectionState() {
  const state = connection.value;
  if (state.phase === "live") {
    return (
      <span class="connection live" role="status">
        <i aria-hidden="true" />
        Live
      </span>
    );
  }
  const left = state.phase === "waiting" ? Math.max(0, Math.ceil((state.until - now.value) / 1000)) : 0;
  return (
    <span class="connection lost">
      <i aria-hidden="true" />
      <span role="status">{state.phase === "waiting" ? "Not connected" : "Connecting"}</span>
      {state.phase === "waiting" && (
        <>
          <span class="muted countdown">{left > 0 ? `retrying in ${left}s` : "retrying"}</span>
          <button type="button" class="link" onClick={reconnectNow}>
            Retry now
          </button>
        </>
      )}
    </span>
  );
}
