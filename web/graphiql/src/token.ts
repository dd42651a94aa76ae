/** The token: handed over by the server with the page (`pilotlight up` on loopback), or typed once for this window. */

const KEPT_AS = "pilotlight:token";

/** What the server has put into the page, if it has. */
export function handedOver(): string | null {
  const given = document.getElementById("pilotlight")?.textContent;
  if (!given) return null;
  const { token } = JSON.parse(given) as { token?: string | null };
  return token ?? null;
}

/** sessionStorage: it is gone with the window, and no other one gets to see it. */
export function remembered(): string {
  return sessionStorage.getItem(KEPT_AS) ?? "";
}

export function remember(token: string): void {
  if (token) sessionStorage.setItem(KEPT_AS, token);
  else sessionStorage.removeItem(KEPT_AS);
}
