// What is on offer where, and what it costs.
import { useEffect, useState } from "preact/hooks";
import { ask, wordsOf } from "../api/request.ts";
import { Market, type MarketResult } from "../generated/api.ts";
import { money, words } from "../format.ts";
import { Shape, type Tone } from "../ui/chip.tsx";
import { Hidden, Icon } from "../ui/icons.tsx";
import { Empty, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";

type Product = MarketResult["products"][number];

const STOCK: Record<string, Tone> = { high: "good", normal: "good", low: "leaving", none: "off" };

export function MarketView() {
  const [found, setFound] = useState<{ market: MarketResult; at: string } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isFreeOnly, setFreeOnly] = useState(false);
  const load = () => {
    setProblem(null);
    ask(Market, {})
      .then((market) => setFound({ market, at: new Date().toISOString() }))
      .catch((error: unknown) => setProblem(wordsOf(error)));
  };
  useEffect(load, []);

  const products = (found?.market.products ?? []).filter((each) => !isFreeOnly || each.isAvailable || each.isSpotAvailable);
  const names = [...new Set(products.map((each) => each.name))].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const regions = (found?.market.regions ?? []).filter((region) => products.some((each) => each.region.code === region.code));
  return (
    <div class="view">
      <header class="view-head">
        <h1>Market</h1>
        <div class="actions">
          <label class="check">
            <input type="checkbox" checked={isFreeOnly} onChange={(event) => setFreeOnly(event.currentTarget.checked)} />
            Only what is free
          </label>
          <button type="button" class="button" onClick={load}>
            <Icon name="refresh" size={14} />
            Refresh
          </button>
        </div>
      </header>
      {problem && <Problem retry={load}>{problem}</Problem>}
      {found && names.length === 0 && (
        <Empty icon="market" title="Nothing is on offer">
          <p>The provider lists no GPU product at the moment.</p>
        </Empty>
      )}
      {!found && !problem && <p class="muted">Reading …</p>}
      {found && names.length > 0 && (
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
                          <small>{machine(offers[0])}</small>
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
            Per GPU and hour; below it the spot price. Read <Since at={found.at} /> ago. Choose one to create an instance there.
          </p>
        </>
      )}
    </div>
  );
}

function Offer({ offer }: { offer: Product }) {
  const isFree = offer.isAvailable || offer.isSpotAvailable;
  const stock = offer.inventory ?? (isFree ? "normal" : "none");
  const tone = isFree ? (STOCK[stock] ?? "good") : "off";
  return (
    <a
      class={`offer ${isFree ? "" : "none"}`}
      href={`#/create?product=${encodeURIComponent(offer.name)}&region=${encodeURIComponent(offer.region.code)}`}
    >
      <Hidden>
        {offer.name} in {offer.region.code}:
      </Hidden>
      <span class="figures">{money(offer.pricePerGpuHour, 2)}</span>
      <small>{offer.isSpotAvailable ? `spot ${money(offer.spotPricePerGpuHour, 2)}` : "no spot"}</small>
      <span class={`mark ${tone}`}>
        <Shape tone={tone} />
        {isFree ? words(stock) : "None"}
      </span>
    </a>
  );
}

function machine(product: Product | undefined): string {
  if (!product) return "";
  const parts = [
    product.cpuPerGpu && `${product.cpuPerGpu} cores`,
    product.memoryGbPerGpu && `${product.memoryGbPerGpu} GB memory`,
  ].filter(Boolean);
  return parts.length ? `${parts.join(", ")} a GPU` : "";
}
