// What is wrong with the server or its provider at the moment.
import type { ServerStatusResult } from "../generated/api.ts";

export type Status = ServerStatusResult["serverInfo"];

export interface Trouble {
  readonly key: string;
  readonly tone: "warning" | "bad";
  readonly text: string;
  readonly until: string | null;
}

export function troubles({ provider, workers, eventLog }: Status): Trouble[] {
  const found: Trouble[] = [];
  if (provider.breaker === "OPEN") {
    found.push({
      key: "provider",
      tone: "bad",
      text: "The provider does not answer. Accepted requests wait; what is shown is the last known state.",
      until: provider.retryAt,
    });
  } else if (provider.breaker === "HALF_OPEN") {
    found.push({ key: "provider", tone: "warning", text: "The provider is being tried again after an outage.", until: null });
  } else if (provider.suspended.length > 0) {
    found.push({ key: "provider", tone: "warning", text: `The provider fails on: ${provider.suspended.join(", ")}.`, until: provider.retryAt });
  }
  if (workers === 0) found.push({ key: "workers", tone: "bad", text: "No worker is running: accepted requests wait.", until: null });
  if (!eventLog.hasSequencer || !eventLog.isFollowed) {
    found.push({ key: "events", tone: "bad", text: "The event log is not being written or read: changes are shown late.", until: null });
  }
  return found;
}
