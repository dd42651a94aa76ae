// Light, dark, or whatever the system says.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEPT = "pilotlight.theme";

export const theme = signal<Theme>(kept());

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  localStorage.setItem(KEPT, theme.value);
});

function kept(): Theme {
  const found = localStorage.getItem(KEPT);
  return found === "light" || found === "dark" ? found : "system";
}
