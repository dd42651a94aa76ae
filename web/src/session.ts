// The token: from the page itself or typed in; a typed one is kept in sessionStorage, that is until the tab is closed.
import { signal } from "@preact/signals";

const STORAGE_KEY = "pilotlight:token";

export const token = signal<string | null>(tokenInPage() ?? sessionStorage.getItem(STORAGE_KEY));
export const signInError = signal<string | null>(null);

export function signIn(secret: string): void {
  sessionStorage.setItem(STORAGE_KEY, secret);
  signInError.value = null;
  token.value = secret;
}

export function signOut(): void {
  clear(null);
}

// The server rejected this token. It may say so twice, over HTTP and the WebSocket, and late: another token may be in
// use by then, and stays.
export function rejectToken(secret: string, message: string): void {
  if (token.value === secret) clear(message);
}

function clear(message: string | null): void {
  sessionStorage.removeItem(STORAGE_KEY);
  signInError.value = message;
  token.value = null;
}

function tokenInPage(): string | null {
  const json = document.getElementById("pilotlight")?.textContent;
  if (!json) return null;
  const parsed: unknown = JSON.parse(json);
  const secret = typeof parsed === "object" && parsed !== null && "token" in parsed ? parsed.token : null;
  return typeof secret === "string" ? secret : null;
}
