// The theme: light, dark, or the system’s.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const STORAGE_KEY = "pilotlight.theme";

export const theme = signal<Theme>(storedTheme());

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  localStorage.setItem(STORAGE_KEY, theme.value);
});

function storedTheme(): Theme {
  const stored = localStorage.getItem(STORAGE_KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}
