// The token’s role, so that the page offers only permitted actions. The server checks every request itself.
import { signal } from "@preact/signals";
import { backoff } from "../api/backoff.ts";
import { ApiError, request } from "../api/request.ts";
import { type Role, WhoAmI, type WhoAmIResult } from "../generated/api.ts";

export const viewer = signal<WhoAmIResult["viewer"] | null>(null);

const RANK: Record<Role, number> = { READER: 0, OPERATOR: 1, ADMIN: 2 };

export function may(role: Role): boolean {
  return viewer.value === null || RANK[viewer.value.role] >= RANK[role];
}

// Caches and pausing jobs affect all projects: only tokens that administer the server may.
export function runsServer(): boolean {
  return viewer.value?.runsServer === true;
}

export function loadViewer(): () => void {
  let isOver = false;
  const load = async () => {
    for (let tries = 0; !isOver; tries++) {
      try {
        const loaded = (await request(WhoAmI, {})).viewer;
        if (!isOver) viewer.value = loaded;
        return;
      } catch (error) {
        if (!(error instanceof ApiError) || !error.retryable) return;
        await new Promise((resolve) => setTimeout(resolve, backoff(tries)));
      }
    }
  };
  void load();
  return () => {
    isOver = true;
    viewer.value = null;
  };
}
