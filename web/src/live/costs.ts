// What the Costs view shows, as it is in the address.
import type { SpendFilter, SpendGroupBy } from "../generated/api.ts";
import { parameter, setParameters } from "../route.ts";

export const PERIODS = [
  { value: "7", text: "7 days" },
  { value: "30", text: "30 days" },
  { value: "month", text: "This month" },
] as const;
export type Period = (typeof PERIODS)[number]["value"];

export const BY = [
  { value: "product", text: "Product", group: "PRODUCT" },
  { value: "region", text: "Region", group: "REGION" },
  { value: "token", text: "Token", group: "TOKEN" },
  { value: "label", text: "Label", group: "LABEL" },
] as const satisfies readonly { value: string; text: string; group: SpendGroupBy }[];
export type By = (typeof BY)[number]["value"];

const DAY = 86_400_000;

export interface Choice {
  readonly period: Period;
  readonly by: By;
  readonly labelKey: string;
}

export function choice(): Choice {
  const period = PERIODS.find((each) => each.value === parameter("period"))?.value ?? "30";
  const by = BY.find((each) => each.value === parameter("by"))?.value ?? "product";
  return { period, by, labelKey: parameter("label") };
}

export function choose(change: Partial<Choice>): void {
  const { period, by, labelKey } = { ...choice(), ...change };
  setParameters({ period: period === "30" ? "" : period, by: by === "product" ? "" : by, label: by === "label" ? labelKey : "" });
}

// Whole days in UTC, today included.
export function filterOf(period: Period, now: number): SpendFilter {
  const today = Math.floor(now / DAY) * DAY;
  const month = new Date(today);
  month.setUTCDate(1);
  const since = period === "month" ? month.getTime() : today - (Number(period) - 1) * DAY;
  return { since: new Date(since).toISOString() };
}
