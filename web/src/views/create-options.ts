// What the create form offers: templates, volumes, and products by price with their stock.
import { request } from "../api/request.ts";
import { type CreateOptionsResult, TemplatePage, type TemplatePageResult, VolumePage, type VolumePageResult } from "../generated/api.ts";
import type { Money } from "../format.ts";

export type Template = TemplatePageResult["templates"]["nodes"][number];

export async function allTemplates(): Promise<Template[]> {
  const found: Template[] = [];
  for (let after: string | null = null; ; ) {
    const page: TemplatePageResult["templates"] = (await request(TemplatePage, { after })).templates;
    found.push(...page.nodes);
    if (!page.pageInfo.hasNextPage) return found;
    after = page.pageInfo.endCursor;
  }
}

export type Volume = VolumePageResult["volumes"]["nodes"][number];

export async function allVolumes(): Promise<Volume[]> {
  const found: Volume[] = [];
  for (let after: string | null = null; ; ) {
    const page: VolumePageResult["volumes"] = (await request(VolumePage, { after })).volumes;
    found.push(...page.nodes);
    if (!page.pageInfo.hasNextPage) return found;
    after = page.pageInfo.endCursor;
  }
}

export type Offer = CreateOptionsResult["products"][number];

export interface Choice {
  readonly name: string;
  readonly from: Money | null;
  readonly stock: string;
}

// One choice per product: the cheapest first, what is out of stock last.
export function choices(products: readonly Offer[]): Choice[] {
  const names = [...new Set(products.map((each) => each.name))];
  return names
    .map((name) => {
      const offers = products.filter((each) => each.name === name && (each.isAvailable || each.isSpotAvailable));
      const [from] = offers
        .flatMap((each) => [each.isAvailable ? each.pricePerGpuHour : null, each.isSpotAvailable ? each.spotPricePerGpuHour : null])
        .filter((price) => price !== null)
        .sort((one, other) => one.amountMicros - other.amountMicros);
      const isLow = offers.every((each) => each.inventory === "low");
      return { name, from: from ?? null, stock: offers.length === 0 ? "out of stock" : isLow ? "low stock" : "in stock" };
    })
    .sort((one, other) => (one.from?.amountMicros ?? Infinity) - (other.from?.amountMicros ?? Infinity) || one.name.localeCompare(other.name));
}
