// What a budget or a quota is about, and amounts that people type.
import type { BudgetScopeInput } from "../generated/api.ts";

export interface Scope {
  readonly tokenId: string | null;
  readonly label: { readonly key: string; readonly value: string } | null;
}

export function scopeOf({ label, tokenId }: Scope): string {
  if (label) return `${label.key}=${label.value}`;
  return tokenId ? "one token" : "the whole project";
}

// From text like team=research; empty: the whole project.
export function scopeInput(text: string): BudgetScopeInput {
  if (!text) return { project: true };
  const [key = "", ...value] = text.split("=");
  return { label: { key: key.trim(), value: value.join("=").trim() } };
}

export function microsOf(text: string): { amountMicros: number } {
  const dollars = Number.parseFloat(text.replace(",", "."));
  return { amountMicros: Number.isFinite(dollars) ? Math.round(dollars * 1_000_000) : 0 };
}
