// Who is asking: the token that came with the page, else one that was typed in, kept until the tab is closed.
import { signal } from "@preact/signals";

const KEPT = "pilotlight:token";

export const token = signal<string | null>(given() ?? sessionStorage.getItem(KEPT));
export const refused = signal<string | null>(null);

export function signIn(secret: string): void {
  sessionStorage.setItem(KEPT, secret);
  refused.value = null;
  token.value = secret;
}

export function signOut(): void {
  leave(null);
}

// The server knows no such token. It may say so twice, over HTTP and the socket, and late: somebody may be here by then.
export function refuse(secret: string, why: string): void {
  if (token.value === secret) leave(why);
}

function leave(why: string | null): void {
  sessionStorage.removeItem(KEPT);
  refused.value = why;
  token.value = null;
}

function given(): string | null {
  const boot = document.getElementById("pilotlight")?.textContent;
  if (!boot) return null;
  const found: unknown = JSON.parse(boot);
  const secret = typeof found === "object" && found !== null && "token" in found ? found.token : null;
  return typeof secret === "string" ? secret : null;
}
