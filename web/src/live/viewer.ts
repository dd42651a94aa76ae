// What the token may do, so that nobody is offered what would be refused. The server decides all the same.
import { signal } from "@preact/signals";
import { backoff } from "../api/backoff.ts";
import { ApiError, ask } from "../api/request.ts";
import { type Role, WhoAmI, type WhoAmIResult } from "../generated/api.ts";

export const viewer = signal<WhoAmIResult["viewer"] | null>(null);

const RANK: Record<Role, number> = { READER: 0, OPERATOR: 1, ADMIN: 2 };

export function may(role: Role): boolean {
  return viewer.value === null || RANK[viewer.value.role] >= RANK[role];
}

// Jobs of all projects, caches: what concerns everybody is for those who run the server.
export function runsServer(): boolean {
  return viewer.value?.runsServer === true;
}

export function learnViewer(): () => void {
  let isOver = false;
  const learn = async () => {
    for (let tries = 0; !isOver; tries++) {
      try {
        const found = (await ask(WhoAmI, {})).viewer;
        if (!isOver) viewer.value = found;
        return;
      } catch (error) {
        if (!(error instanceof ApiError) || !error.retryable) return;
        await new Promise((resolve) => setTimeout(resolve, backoff(tries)));
      }
    }
  };
  void learn();
  return () => {
    isOver = true;
    viewer.value = null;
  };
}
