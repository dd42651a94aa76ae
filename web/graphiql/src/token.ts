/** The token: provided by the server in the page (`pilotlight up` on loopback), or typed in and kept for this tab. */

const STORAGE_KEY = "pilotlight:token";

/** The token that the server put into the page, if any. */
export function tokenInPage(): string | null {
  const json = document.getElementById("pilotlight")?.textContent;
  if (!json) return null;
  const { token } = JSON.parse(json) as { token?: string | null };
  return token ?? null;
}

/** In sessionStorage: it ends with the tab, and other tabs cannot read it. */
export function storedToken(): string {
  return sessionStorage.getItem(STORAGE_KEY) ?? "";
}

export function storeToken(token: string): void {
  if (token) sessionStorage.setItem(STORAGE_KEY, token);
  else sessionStorage.removeItem(STORAGE_KEY);
}
