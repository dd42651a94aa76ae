// The token: from the page itself or typed in; a typed one is kept in sessionStorage, that is until the tab is closed.
// After a login there is none: the browser sends a cookie that this page can't read, and the token is SESSION.
import { signal } from "@preact/signals";

const STORAGE_KEY = "pilotlight:token";
export const SESSION = "";

const page = settingsInPage();
export const offersLogin = page["login"] === true;
const tokenInPage = typeof page["token"] === "string" ? page["token"] : null;

export const token = signal<string | null>(tokenInPage ?? sessionStorage.getItem(STORAGE_KEY) ?? (offersLogin ? SESSION : null));
export const signInError = signal<string | null>(null);

export function signIn(secret: string): void {
  sessionStorage.setItem(STORAGE_KEY, secret);
  signInError.value = null;
  token.value = secret;
}

export function signOut(): void {
  // The session ends at the server as well. Without an answer it ends by itself after SESSION_LIFETIME.
  if (token.value === SESSION) void fetch("/logout", { method: "POST" }).catch(() => undefined);
  clear(null);
}

// The server rejected this token. It may say so twice, over HTTP and the WebSocket, and late: another token may be in
// use by then, and stays.
export function rejectToken(secret: string, message: string): void {
  if (token.value === secret) clear(secret === SESSION ? null : message);
}

function clear(message: string | null): void {
  sessionStorage.removeItem(STORAGE_KEY);
  signInError.value = message;
  token.value = null;
}

function settingsInPage(): Record<string, unknown> {
  const json = document.getElementById("pilotlight")?.textContent;
  const parsed: unknown = json ? JSON.parse(json) : {};
  return typeof parsed === "object" && parsed !== null ? { ...parsed } : {};
}
