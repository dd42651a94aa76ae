// The quote beside the create form: which regions are tried, in which order, at which price.
import { useEffect, useMemo, useState } from "preact/hooks";
import { request } from "../api/request.ts";
import { GetQuote, type GetQuoteResult } from "../generated/api.ts";
import { money, perMonth } from "../format.ts";
import { type Draft, quoteInput } from "../live/draft.ts";
import { Shape } from "../ui/chip.tsx";

export type Quote = GetQuoteResult["quote"];
// Wait for a pause in typing before the next quote is requested.
const QUOTE_DELAY = 250;

export function useQuote(draft: Draft): { quote: Quote | null; isPending: boolean } {
  const [quote, setQuote] = useState<Quote | null>(null);
  const [isPending, setPending] = useState(false);
  const input = useMemo(() => JSON.stringify(quoteInput(draft)), [draft]);
  useEffect(() => {
    if (!draft.productName) return;
    const abort = new AbortController();
    setPending(true);
    const timer = setTimeout(async () => {
      try {
        setQuote((await request(GetQuote, { input: quoteInput(draft) }, abort.signal)).quote);
      } catch {
        if (!abort.signal.aborted) setQuote(null);
      }
      if (!abort.signal.aborted) setPending(false);
    }, QUOTE_DELAY);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [input]);
  return { quote, isPending };
}

export function QuotePanel({ quote, isPending, errors }: { quote: Quote | null; isPending: boolean; errors: ReadonlyMap<string, string> }) {
  const best = quote?.best;
  return (
    <aside class={`panel quote ${isPending ? "pending" : ""}`} aria-label="Quote">
      <div class="price" aria-live="polite">
        <div>
          <span class="figure">{best ? money(best.pricePerHour) : "–"}</span>
          <span class="muted"> per hour</span>
        </div>
        <span class="muted figures">{best ? `≈ ${perMonth(best.pricePerHour)} per month` : ""}</span>
      </div>
      {quote && quote.candidates.length > 0 ? (
        <ol class="candidates">
          {quote.candidates.map((each) => {
            const isBest = best?.rank === each.rank;
            return (
              <li key={each.rank} class={isBest ? "best good" : each.accepted ? "good" : "off"}>
                <span class="rank">{each.rank}</span>
                <span>
                  {each.region} <span class="tag">{each.billingMode === "SPOT" ? "spot" : "on-demand"}</span>
                </span>
                <span class="mark figures">
                  <Shape tone={each.accepted ? "good" : "off"} />
                  {money(each.pricePerHour)}
                </span>
                {each.reasonMessage && <p>{each.reasonMessage}</p>}
                {isBest && <p>tried first</p>}
              </li>
            );
          })}
        </ol>
      ) : (
        <p class="body muted">
          {words(quote, isPending, errors)}
        </p>
      )}
    </aside>
  );
}

function words(quote: Quote | null, isPending: boolean, errors: ReadonlyMap<string, string>): string {
  if (!quote) return isPending ? "Reading prices and stock …" : "Prices and stock appear here, in the order in which regions will be tried.";
  return [...errors.values()][0] ?? "No region offers this product.";
}
