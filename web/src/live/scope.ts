// What a budget or a quota is about, and amounts that people type.
import { useEffect, useState } from "preact/hooks";
import { request } from "../api/request.ts";
import { type BudgetScopeInput, NamesOf } from "../generated/api.ts";

export interface Scope {
  readonly tokenId: string | null;
  readonly label: { readonly key: string; readonly value: string } | null;
}

export function scopeOf({ label, tokenId }: Scope, names: ReadonlyMap<string, string>): string {
  if (label) return `${label.key}=${label.value}`;
  return tokenId ? `the token ${names.get(tokenId) ?? tokenId}` : "the whole project";
}

// The names of the tokens that budgets or quotas are about.
export function useTokenNames(scopes: readonly Scope[] | undefined): ReadonlyMap<string, string> {
  const ids = [...new Set((scopes ?? []).flatMap(({ tokenId }) => tokenId ?? []))];
  const [names, setNames] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    if (ids.length === 0) return;
    request(NamesOf, { ids })
      .then(({ nodes }) => setNames(new Map(nodes.flatMap((node) => (node?.tokenName ? [[node.id, node.tokenName]] : [])))))
      .catch(() => undefined); // its id is shown instead
  }, [ids.join()]);
  return names;
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
