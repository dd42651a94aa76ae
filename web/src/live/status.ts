// How the server and its provider are, for the strip above every view.
import { signal } from "@preact/signals";
import { ApiError, request } from "../api/request.ts";
import { ServerStatus } from "../generated/api.ts";
import type { Status } from "./troubles.ts";

export const status = signal<Status | null>(null);

// No subscription carries it: events need the very parts that may be down.
const INTERVAL = 15_000;

export function followStatus(): () => void {
  const abort = new AbortController();
  const load = async () => {
    if (document.hidden) return;
    try {
      status.value = (await request(ServerStatus, {}, abort.signal)).serverInfo;
    } catch (error) {
      // The connection’s state says that the server can’t be reached; what was known before may be wrong by now.
      if (error instanceof ApiError) status.value = null;
    }
  };
  void load();
  const timer = setInterval(load, INTERVAL);
  document.addEventListener("visibilitychange", load);
  return () => {
    abort.abort();
    clearInterval(timer);
    document.removeEventListener("visibilitychange", load);
    status.value = null;
  };
}
