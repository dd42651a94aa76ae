// Products by region: prices and stock.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { Market, type MarketResult } from "../generated/api.ts";
import { money, words } from "../format.ts";
import { parameter, setParameters } from "../route.ts";
import { Shape, type Tone } from "../ui/chip.tsx";
import { Hidden, Icon } from "../ui/icons.tsx";
import { Empty, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";

type Product = MarketResult["products"][number];

const STOCK: Record<string, Tone> = { high: "good", normal: "good", low: "warning", none: "off" };

export function MarketView() {
  const [loaded, setLoaded] = useState<{ market: MarketResult; at: string } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const isInStockOnly = parameter("stock") === "in";
  const load = () => {
    setProblem(null);
    request(Market, {})
      .then((market) => setLoaded({ market, at: new Date().toISOString() }))
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  useEffect(load, []);

  const products = (loaded?.market.products ?? []).filter((each) => !isInStockOnly || each.isAvailable || each.isSpotAvailable);
  const names = [...new Set(products.map((each) => each.name))].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const regions = (loaded?.market.regions ?? []).filter((region) => products.some((each) => each.region.code === region.code));
  return (
    <div class="view">
      <header class="view-head">
        <h1>Market</h1>
        <div class="actions">
          <label class="check">
            <input type="checkbox" checked={isInStockOnly} onChange={(event) => setParameters({ stock: event.currentTarget.checked ? "in" : "" })} />
            In stock only
          </label>
          <button type="button" class="button" onClick={load}>
            <Icon name="refresh" size={14} />
            Refresh
          </button>
        </div>
      </header>
      {problem && <Problem retry={load}>{problem}</Problem>}
      {loaded && names.length === 0 && (
        <Empty icon="market" title="No products">
          <p>The provider lists no matching GPU product at the moment.</p>
        </Empty>
      )}
      {!loaded && !problem && <p class="muted">Loading …</p>}
      {loaded && names.length > 0 && (
        <>
          <div class="panel scroll-x" tabIndex={0} role="region" aria-label="Prices by product and region">
            <table class="grid-table market cards-on-phone">
              <thead>
                <tr>
                  <th scope="col">Product</th>
                  {regions.map((region) => (
                    <th key={region.code} scope="col">
                      {region.code}
                      {region.place && <small>{region.place}</small>}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {names.map((name) => {
                  const offers = products.filter((each) => each.name === name);
                  return (
                    <tr key={name}>
                      <th scope="row">
                        <span>
                          {name}
                          <small>{machineText(offers[0])}</small>
                        </span>
                      </th>
                      {regions.map((region) => {
                        const offer = offers.find((each) => each.region.code === region.code);
                        return (
                          <td key={region.code} data-label={offer ? region.code : undefined} class={offer ? "" : "blank"}>
                            {offer ? <Offer offer={offer} /> : <span class="muted" aria-label="not offered">·</span>}
                          </td>
                        );
                      })}
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
          <p class="muted">
            Prices per GPU hour; the spot price is below. Updated <Since at={loaded.at} /> ago. Select a price to create an instance.
          </p>
        </>
      )}
    </div>
  );
}

function Offer({ offer }: { offer: Product }) {
  const isInStock = offer.isAvailable || offer.isSpotAvailable;
  const stock = offer.inventory ?? (isInStock ? "normal" : "none");
  const tone = isInStock ? (STOCK[stock] ?? "good") : "off";
  return (
    <a
      class={`offer ${isInStock ? "" : "none"}`}
      href={`#/create?product=${encodeURIComponent(offer.name)}&region=${encodeURIComponent(offer.region.code)}`}
    >
      <Hidden>
        {offer.name} in {offer.region.code}:
      </Hidden>
      <span class="figures">{money(offer.pricePerGpuHour, 2)}</span>
      <small>{offer.isSpotAvailable ? `spot ${money(offer.spotPricePerGpuHour, 2)}` : "no spot"}</small>
      <span class={`mark ${tone}`}>
        <Shape tone={tone} />
        {isInStock ? `${words(stock)} stock` : "Out of stock"}
      </span>
    </a>
  );
}

function machineText(product: Product | undefined): string {
  if (!product) return "";
  const parts = [
    product.cpuPerGpu && `${product.cpuPerGpu} cores`,
    product.memoryGbPerGpu && `${product.memoryGbPerGpu} GB memory`,
  ].filter(Boolean);
  return parts.length ? `${parts.join(", ")} per GPU` : "";
}
