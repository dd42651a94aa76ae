// One product in one region: prices and stock of the last week, and a form for an alert.
import { useEffect, useMemo, useState } from "preact/hooks";
import { newIdempotencyKey, requestWithRetry } from "../api/request.ts";
import { subscribe } from "../api/subscriptions.ts";
import { CreateAlert, OfferDetail, type OfferDetailResult, WatchOffer } from "../generated/api.ts";
import { duration, money } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may } from "../live/viewer.ts";
import { Icon } from "../ui/icons.tsx";
import { Field, Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { Sparkline } from "../ui/sparkline.tsx";

const HOUR = 3_600_000;
const DAYS = 7;

type Offer = OfferDetailResult["market"][number];
type Part = OfferDetailResult["spot"][number];

export function OfferPanel({ product, region, close, changed }: { product: string; region: string; close: () => void; changed: () => void }) {
  const since = useMemo(() => new Date((Math.floor(Date.now() / HOUR) - DAYS * 24) * HOUR).toISOString(), [product, region]);
  const { data, problem, reload } = useLoaded(OfferDetail, { product, region, since, bucket: HOUR / 1000 });
  // It is polled more often while it is shown.
  useEffect(() => {
    const filter = { productNames: [product], regions: [region] };
    let isFirst = true;
    return subscribe(WatchOffer, () => ({ filter }), {
      next: () => {
        if (!isFirst) reload();
        isFirst = false;
      },
    });
  }, [product, region]);
  return (
    <Panel
      title={`${product} in ${region}`}
      aside={
        <button type="button" class="icon-button" aria-label="Close history" onClick={close}>
          <Icon name="cross" size={16} />
        </button>
      }
    >
      {problem && <Problem retry={reload}>{problem}</Problem>}
      {!data && !problem && <p class="muted body">Loading …</p>}
      {data && (
        <div class="body offer-history">
          <Mode title="Spot" offer={data.market.find((each) => each.billingMode === "SPOT")} parts={data.spot} />
          <Mode title="On demand" offer={data.market.find((each) => each.billingMode === "ON_DEMAND")} parts={data.onDemand} />
          {may("OPERATOR") && <AlertForm product={product} region={region} done={changed} />}
        </div>
      )}
    </Panel>
  );
}

function Mode({ title, offer, parts }: { title: string; offer: Offer | undefined; parts: readonly Part[] }) {
  const points = parts.map((part) => ({ price: part.last?.amountMicros ?? null, stock: Math.min(1, part.availableFor / (HOUR / 1000)) }));
  const prices = points.flatMap((point) => (point.price === null ? [] : [point.price]));
  const at = (micros: number) => money({ amountMicros: micros, currency: "USD" }, 2);
  const range = prices.length === 0 ? "No price was seen in stock" : `${at(Math.min(...prices))} to ${at(Math.max(...prices))}`;
  return (
    <section aria-label={title}>
      <h3>
        {title} <span class="figures">{money(offer?.pricePerHour, 2)}</span>
      </h3>
      <Sparkline label={`${title}, last ${DAYS} days: ${range}`} points={points} />
      <p class="muted">
        {range} in {DAYS} days.{" "}
        {offer?.isAvailable && "In stock now. "}
        {offer && !offer.isAvailable && offer.lastAvailableAt && (
          <>
            Last in stock <Since at={offer.lastAvailableAt} /> ago.{" "}
          </>
        )}
        {offer && !offer.isAvailable && !offer.lastAvailableAt && "Never seen in stock. "}
        {offer ? `In stock for ${duration(offer.availableFor30d * 1000)} of the last 30 days, as far as it was polled.` : "It was not polled yet."}
      </p>
    </section>
  );
}

function AlertForm({ product, region, done }: { product: string; region: string; done: () => void }) {
  const [price, setPrice] = useState("");
  const [key, setKey] = useState(newIdempotencyKey);
  const submit = async (event: Event) => {
    event.preventDefault();
    const dollars = Number.parseFloat(price.replace(",", "."));
    const priceAtMost = price.trim() === "" ? null : { amountMicros: Number.isFinite(dollars) ? Math.round(dollars * 1_000_000) : 0 };
    const input = { productNames: [product], regions: [region], priceAtMost, idempotencyKey: key };
    const isDone = await runMutation(async () => (await requestWithRetry(CreateAlert, { input })).createAlert.errors, {
      succeeded: "Alert created",
      rejected: "Alert not created",
    });
    setKey(newIdempotencyKey());
    if (isDone) done();
  };
  return (
    <form class="alert-form" onSubmit={submit}>
      <Field label="At most, $ per hour">
        {(ids) => <input {...ids} inputMode="decimal" placeholder="any price" value={price} onInput={(event) => setPrice(event.currentTarget.value)} />}
      </Field>
      <button type="submit" class="button">
        Alert me when in stock
      </button>
    </form>
  );
}
