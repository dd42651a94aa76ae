// Spend by day as stacks of parts.
import type { CostReportResult } from "../generated/api.ts";

const DAY = 86_400_000;

export interface Bar {
  readonly day: string;
  readonly total: number;
  readonly parts: readonly { readonly key: string | null; readonly series: number; readonly micros: number }[];
}

// The rest of each day that none of the large groups has.
export const OTHERS = 7;

export function barsOf({ parts, days }: CostReportResult, since: string, now: number): Bar[] {
  const series = new Map(parts.groups.slice(0, OTHERS).map((group, index) => [group.key, index]));
  const totals = new Map(days.groups.map((group) => [group.key, group.amount.amountMicros]));
  const bars: Bar[] = [];
  for (let at = Date.parse(since); at <= now; at += DAY) {
    const day = new Date(at).toISOString().slice(0, 10);
    const cells = parts.byDay
      .filter((cell) => cell.day === day)
      .map((cell) => ({ key: cell.key, series: series.get(cell.key) ?? OTHERS, micros: cell.amount.amountMicros }));
    const known = cells.reduce((sum, cell) => sum + cell.micros, 0);
    const total = Math.max(totals.get(day) ?? 0, known);
    // Amounts are rounded one by one: less than a thousandth of a dollar is no other group.
    if (total - known > 1000) cells.push({ key: "others", series: OTHERS, micros: total - known });
    bars.push({ day, total, parts: cells });
  }
  return bars;
}
