// Days of the provider’s bill.
import type { CostReportResult } from "../generated/api.ts";

type Day = NonNullable<CostReportResult["parts"]["billedDays"]>[number];

// As the server announces it with spend.differs: above 2 % of the larger side, and above 0.10 USD.
export function differs({ billed, ledger }: Pick<Day, "billed" | "ledger">): boolean {
  const difference = Math.abs(billed.amountMicros - ledger.amountMicros);
  return difference > 100_000 && difference > 0.02 * Math.max(billed.amountMicros, ledger.amountMicros);
}

export function newestFirst<T extends { readonly day: string }>(days: readonly T[]): T[] {
  return [...days].sort((one, other) => other.day.localeCompare(one.day));
}
