// What a token may do at most: as text, and from what is typed into the form.
import type { TokenLimitsInput, TokensResult } from "../generated/api.ts";
import { count, money, span } from "../format.ts";
import { microsOf } from "./scope.ts";

type Limits = TokensResult["tokens"]["nodes"][number]["limits"];

export function limitWords({ budget, quota, maxDuration, productNames, regions, ownInstancesOnly }: Limits): string[] {
  return [
    budget && `${money(budget.spent, 2)} of ${money(budget.limit, 2)} spent`,
    quota && quota.maxInstances !== null && `at most ${count(quota.maxInstances, "instance")} at once`,
    quota && quota.maxPricePerHour !== null && `at most ${money(quota.maxPricePerHour, 2)} per hour`,
    maxDuration !== null && `runs of at most ${span(maxDuration * 1000)}`,
    productNames && `only ${productNames.join(", ")}`,
    regions && `only in ${regions.join(", ")}`,
    ownInstancesOnly && "sees only its own instances",
  ].filter((each) => typeof each === "string");
}

export interface LimitTexts {
  readonly budget: string;
  readonly maxInstances: string;
  readonly maxPricePerHour: string;
  readonly maxDuration: string; // hours
  readonly productNames: string; // separated by commas
  readonly regions: string;
  readonly ownInstancesOnly: boolean;
}

export const NO_LIMITS: LimitTexts = {
  budget: "", maxInstances: "", maxPricePerHour: "", maxDuration: "", productNames: "", regions: "", ownInstancesOnly: false,
};

// What can’t be read as a number is sent as 0, which the server refuses at its field.
export function limitsInput(texts: LimitTexts): TokenLimitsInput | null {
  const numberOf = (text: string) => Number.parseFloat(text.replace(",", ".")) || 0;
  const input = {
    ...(texts.budget && { budget: microsOf(texts.budget) }),
    ...(texts.maxInstances && { maxInstances: Math.round(numberOf(texts.maxInstances)) }),
    ...(texts.maxPricePerHour && { maxPricePerHour: microsOf(texts.maxPricePerHour) }),
    ...(texts.maxDuration && { maxDuration: Math.round(numberOf(texts.maxDuration) * 3600) }),
    ...(texts.productNames && { productNames: listOf(texts.productNames) }),
    ...(texts.regions && { regions: listOf(texts.regions) }),
    ...(texts.ownInstancesOnly && { ownInstancesOnly: true }),
  };
  return Object.keys(input).length > 0 ? input : null;
}

function listOf(text: string): string[] {
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}
