// Products by region: prices and stock, their history, and alerts.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { Alerts as AlertsQuery, Market, type MarketResult } from "../generated/api.ts";
import { money, words } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { parameter, setParameters } from "../route.ts";
import { Shape, type Tone } from "../ui/chip.tsx";
import { Hidden, Icon } from "../ui/icons.tsx";
import { Empty, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { Alerts } from "./market-alerts.tsx";
import { OfferPanel } from "./market-offer.tsx";
import { MarketQueue } from "./market-queue.tsx";

type Product = MarketResult["products"][number];

const STOCK: Record<string, Tone> = { high: "good", normal: "good", low: "warning", none: "off" };

const A_DAY = 86_400; // how long a create of the market waits, unless the form says otherwise

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
  const alerts = useLoaded(AlertsQuery, {});
  const [product = "", region = ""] = parameter("offer").split("@");
  const close = () => setParameters({ offer: "" });

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
          <p>The provider lists no matching GPU product at the moment. {isInStockOnly ? "Look at those that are out of stock, too: an instance can wait for one." : "Refresh to look again."}</p>
        </Empty>
      )}
      {!loaded && !problem && <p class="muted">Loading …</p>}
      {product && region && <OfferPanel key={`${product}@${region}`} product={product} region={region} close={close} changed={alerts.reload} />}
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
                            {offer ? <Offer offer={offer} lastAvailableAt={lastAvailable(loaded.market, offer)} /> : <span class="muted" aria-label="not offered">·</span>}
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
            Prices per GPU hour; the spot price is below. Updated <Since at={loaded.at} /> ago. Select a price to create an instance, now or when it is available, or its
            chart for its history and an alert.
          </p>
        </>
      )}
      {loaded && <MarketQueue />}
      {loaded && <Alerts loaded={alerts} />}
    </div>
  );
}

// In any billing mode; null also while it is in stock.
function lastAvailable({ offers }: MarketResult, { name, region }: Product): string | null {
  const found = offers.filter((each) => each.productName === name && each.region === region.code);
  if (found.some((each) => each.isAvailable)) return null;
  return found.map((each) => each.lastAvailableAt).sort().at(-1) ?? null;
}

function Offer({ offer, lastAvailableAt }: { offer: Product; lastAvailableAt: string | null }) {
  const isInStock = offer.isAvailable || offer.isSpotAvailable;
  const stock = offer.inventory ?? (isInStock ? "normal" : "none");
  const tone = isInStock ? (STOCK[stock] ?? "good") : "off";
  const where = `${offer.name} in ${offer.region.code}`;
  return (
    <span class="offer-cell">
      <a
        class={`offer ${isInStock ? "" : "none"}`}
        href={`#/create?product=${encodeURIComponent(offer.name)}&region=${encodeURIComponent(offer.region.code)}${isInStock ? "" : `&only=1&wait=${A_DAY}`}`}
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
        {!isInStock && lastAvailableAt && (
          <small>
            in stock <Since at={lastAvailableAt} /> ago
          </small>
        )}
        {!isInStock && <small>Create when available</small>}
      </a>
      <button
        type="button"
        class="icon-button"
        aria-label={`History of ${where}`}
        title="History and alert"
        onClick={() => {
          setParameters({ offer: `${offer.name}@${offer.region.code}` });
          scrollTo({ top: 0 });
        }}
      >
        <Icon name="market" size={14} />
      </button>
    </span>
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
