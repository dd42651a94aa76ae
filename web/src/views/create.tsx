// Asking for an instance, with its price beside it while one types.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ask, insist, newKey, type Refusal, wordsOf } from "../api/request.ts";
import { type Billing, Choices, type ChoicesResult, CreateInstance, GetQuote, type GetQuoteResult } from "../generated/api.ts";
import { money, perMonth } from "../format.ts";
import { BLANK, createInput, type Draft, quoteInput } from "../live/draft.ts";
import { may } from "../live/viewer.ts";
import { go } from "../route.ts";
import { confirmed } from "../ui/confirm.tsx";
import { Shape } from "../ui/chip.tsx";
import { Field, Problem, Segments } from "../ui/parts.tsx";

type Quote = GetQuoteResult["quote"];
const TYPING = 250;

export function CreateView({ product, region }: { product: string | null; region: string | null }) {
  const [choices, setChoices] = useState<ChoicesResult | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [draft, setDraft] = useState<Draft>({ ...BLANK, productName: product ?? "", region: region ?? "" });
  const [refusals, setRefusals] = useState<readonly Refusal[]>([]);
  const [isSending, setSending] = useState(false);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  // One key for one wish: sent twice, it is done once. Another wish gets another key.
  const key = useRef(newKey());

  const load = () => {
    setProblem(null);
    ask(Choices, {})
      .then((found) => {
        setChoices(found);
        const usable = found.templates.filter((each) => each.problems.length === 0);
        setDraft((old) => ({
          ...old,
          productName: old.productName || found.products.find((each) => each.isAvailable || each.isSpotAvailable)?.name || "",
          templateId: old.templateId || usable[0]?.id || "",
          source: usable.length ? old.source : "image",
        }));
      })
      .catch((error: unknown) => setProblem(wordsOf(error)));
  };
  useEffect(load, []);

  const { quote, isPending } = useQuote(draft);
  const change = (part: Partial<Draft>) => {
    key.current = newKey();
    setRefusals([]);
    setDraft((old) => ({ ...old, ...part }));
    setTouched((old) => new Set([...old, ...Object.keys(part)]));
  };

  // What the server said about the wish as a whole counts more than what it says while one types.
  const wrong = useMemo(() => {
    const found = new Map<string, string>();
    for (const each of quote?.errors ?? []) note(found, each);
    for (const each of refusals) note(found, each);
    return found;
  }, [quote, refusals]);
  const said = (field: string) => (touched.has(field) || refusals.length > 0 ? wrong.get(field) : undefined);
  const elsewhere = refusals.filter((each) => !FIELDS.has(each.path[1] ?? ""));

  const submit = async (event: Event) => {
    event.preventDefault();
    const best = quote?.best;
    const yes = await confirmed({
      title: `Create ${draft.name.trim() || "this instance"}?`,
      body: best
        ? `It will cost about ${money(best.pricePerHour)} an hour (≈ ${perMonth(best.pricePerHour)} a month) in ${best.region}, from the moment it runs until you stop or delete it.`
        : "It costs from the moment it runs until you stop or delete it. At the moment no region has it free.",
      action: "Create",
    });
    if (!yes) return;
    setSending(true);
    try {
      const { createInstance } = await insist(CreateInstance, { input: createInput(draft, key.current) });
      if (createInstance.instance) return go(`#/instances/${createInstance.instance.id}`);
      setRefusals(createInstance.errors);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setRefusals([{ code: error.code, message: error.message, path: [] }]);
    } finally {
      setSending(false);
    }
  };

  const text = (field: keyof Draft) => ({
    value: draft[field],
    onInput: (event: { currentTarget: { value: string } }) => change({ [field]: event.currentTarget.value }),
  });
  const products = useMemo(() => cheapest(choices), [choices]);
  const regions = [...new Set((choices?.products ?? []).filter((each) => each.name === draft.productName).map((each) => each.region.code))];

  return (
    <div class="view">
      <header class="view-head">
        <h1>Create an instance</h1>
      </header>
      {problem && <Problem retry={load}>{problem}</Problem>}
      <div class="create">
        <form class="panel" onSubmit={submit} noValidate>
          <Field label="Name" hint="1 to 255 characters, yours alone" error={said("name")}>
            {(ids) => <input {...ids} {...text("name")} autocomplete="off" placeholder="trainer" />}
          </Field>
          <div class="pair short">
            <Field label="Product" error={said("productName")}>
              {(ids) => (
                <select {...ids} value={draft.productName} onChange={(event) => change({ productName: event.currentTarget.value, region: "" })}>
                  {products.length === 0 && <option value={draft.productName}>{draft.productName || "Reading …"}</option>}
                  {products.map((each) => (
                    <option key={each.name} value={each.name}>
                      {each.name} · {each.from ? `from ${each.from} a GPU hour` : "none free"}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            <Field label="GPUs" hint="1 to 8" error={said("gpuCount")}>
              {(ids) => <input {...ids} {...text("gpuCount")} type="number" min={1} max={8} inputMode="numeric" />}
            </Field>
          </div>
          <div class="field">
            <span>What it runs</span>
            <Segments
              label="What it runs"
              value={draft.source}
              onChange={(source) => change({ source })}
              options={[
                { value: "template", text: "A template" },
                { value: "image", text: "An image" },
              ]}
            />
          </div>
          {draft.source === "template" ? (
            <Field
              label="Template"
              error={said("templateId")}
              hint={choices?.templates.find((each) => each.id === draft.templateId)?.image ?? "A recipe kept at the provider"}
            >
              {(ids) => (
                <select {...ids} value={draft.templateId} onChange={(event) => change({ templateId: event.currentTarget.value })}>
                  {(choices?.templates ?? []).map((each) => (
                    <option key={each.id} value={each.id} disabled={each.problems.length > 0}>
                      {each.name} · {each.channel}
                      {each.problems.length > 0 && " · can’t be used"}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          ) : (
            <Field label="Image" hint="as docker pull takes it" error={said("image")}>
              {(ids) => <input {...ids} {...text("image")} placeholder="nginx:latest" autocomplete="off" spellcheck={false} />}
            </Field>
          )}
          <div class="pair">
            <Field label="Ports" hint="such as 80, 22/tcp; http unless told otherwise" error={said("ports")}>
              {(ids) => <input {...ids} {...text("ports")} placeholder={draft.source === "template" ? "the template’s" : "none"} autocomplete="off" />}
            </Field>
            <Field label="Region to try first" error={said("region")} hint="others follow if it can’t">
              {(ids) => (
                <select {...ids} value={draft.region} onChange={(event) => change({ region: event.currentTarget.value })}>
                  <option value="">Any</option>
                  {regions.map((code) => (
                    <option key={code} value={code}>
                      {code}
                    </option>
                  ))}
                  {draft.region && !regions.includes(draft.region) && <option value={draft.region}>{draft.region}</option>}
                </select>
              )}
            </Field>
          </div>
          <div class="field">
            <span>How to pay</span>
            <Segments<Billing>
              label="How to pay"
              value={draft.billing}
              onChange={(billing) => change({ billing })}
              options={[
                { value: "SPOT_THEN_ON_DEMAND", text: "Spot first" },
                { value: "SPOT", text: "Spot only" },
                { value: "ON_DEMAND", text: "On demand" },
              ]}
            />
            <p class="note">Spot is cheaper, and may be taken back by the provider.</p>
          </div>
          <details>
            <summary>More: price limit, disk, environment, labels, webhook, health check</summary>
            <div class="pair">
              <Field label="At most, $ an hour" error={said("maxHourlyPrice")}>
                {(ids) => <input {...ids} {...text("maxPrice")} inputMode="decimal" placeholder="no limit" autocomplete="off" />}
              </Field>
              <Field label="Root disk, GB" error={said("rootfsSizeGb")} hint={quote?.rootfsSizeGb ? `would be ${quote.rootfsSizeGb}` : "10 to 1000"}>
                {(ids) => <input {...ids} {...text("rootfsSizeGb")} inputMode="numeric" placeholder="as needed" autocomplete="off" />}
              </Field>
            </div>
            <Field label="Command" error={said("command")}>
              {(ids) => <input {...ids} {...text("command")} placeholder="the image’s own" autocomplete="off" spellcheck={false} />}
            </Field>
            <div class="pair">
              <Field label="Environment" hint="one NAME=value a line" error={said("env")}>
                {(ids) => <textarea {...ids} {...text("env")} spellcheck={false} />}
              </Field>
              <Field label="Labels" hint="one name=value a line" error={said("labels")}>
                {(ids) => <textarea {...ids} {...text("labels")} spellcheck={false} />}
              </Field>
            </div>
            <div class="pair">
              <Field label="Webhook" hint="where its events are sent, signed" error={said("webhookUrl")}>
                {(ids) => <input {...ids} {...text("webhookUrl")} placeholder="https://…" autocomplete="off" spellcheck={false} />}
              </Field>
              <Field label="Health check path" hint="what to ask http ports for" error={said("healthCheck")}>
                {(ids) => <input {...ids} {...text("healthPath")} placeholder="/" autocomplete="off" spellcheck={false} />}
              </Field>
            </div>
          </details>
          {elsewhere.map((each) => (
            <Problem key={each.code}>
              {each.message} <code>{each.code}</code>
            </Problem>
          ))}
          <div class="submit">
            <button type="submit" class="button primary" disabled={isSending || !may("OPERATOR")}>
              {isSending ? "Asking …" : "Create instance"}
            </button>
            <span class="muted">{may("OPERATOR") ? "Nothing is asked for before you confirm." : "Your token may only read."}</span>
          </div>
        </form>
        <QuotePanel quote={quote} isPending={isPending} wrong={wrong} />
      </div>
    </div>
  );
}

const FIELDS: ReadonlySet<string> = new Set([
  "name", "productName", "gpuCount", "templateId", "image", "ports", "region", "maxHourlyPrice", "rootfsSizeGb", "command",
  "env", "labels", "webhookUrl", "healthCheck",
]);

// The first thing that is wrong with a field is enough. A missing source is said where one would mend it.
function note(found: Map<string, string>, refusal: Refusal): void {
  const field = refusal.path[1];
  if (field && !found.has(field)) found.set(field, refusal.message);
}

function useQuote(draft: Draft): { quote: Quote | null; isPending: boolean } {
  const [quote, setQuote] = useState<Quote | null>(null);
  const [isPending, setPending] = useState(false);
  const input = useMemo(() => JSON.stringify(quoteInput(draft)), [draft]);
  useEffect(() => {
    if (!draft.productName) return;
    const abort = new AbortController();
    setPending(true);
    const timer = setTimeout(async () => {
      try {
        setQuote((await ask(GetQuote, { input: quoteInput(draft) }, abort.signal)).quote);
      } catch {
        if (!abort.signal.aborted) setQuote(null);
      }
      if (!abort.signal.aborted) setPending(false);
    }, TYPING);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [input]);
  return { quote, isPending };
}

function QuotePanel({ quote, isPending, wrong }: { quote: Quote | null; isPending: boolean; wrong: ReadonlyMap<string, string> }) {
  const best = quote?.best;
  return (
    <aside class={`panel quote ${isPending ? "pending" : ""}`} aria-label="Quote">
      <div class="price" aria-live="polite">
        <div>
          <span class="figure">{best ? money(best.pricePerHour) : "–"}</span>
          <span class="muted"> an hour</span>
        </div>
        <span class="muted figures">{best ? `≈ ${perMonth(best.pricePerHour)} a month` : ""}</span>
      </div>
      {quote && quote.candidates.length > 0 ? (
        <ol class="candidates">
          {quote.candidates.map((each) => {
            const isBest = best?.rank === each.rank;
            return (
              <li key={each.rank} class={isBest ? "best good" : each.accepted ? "good" : "off"}>
                <span class="rank">{each.rank}</span>
                <span>
                  {each.region} <span class="tag">{each.billingMode === "SPOT" ? "spot" : "on demand"}</span>
                </span>
                <span class="mark figures">
                  <Shape tone={each.accepted ? "good" : "off"} />
                  {money(each.pricePerHour)}
                </span>
                {each.reasonMessage && <p>{each.reasonMessage}</p>}
                {isBest && <p>would be tried first</p>}
              </li>
            );
          })}
        </ol>
      ) : (
        <p class="body muted">
          {quote && wrong.size > 0 ? [...wrong.values()][0] : "Regions that could serve it appear here in the order in which they would be tried."}
        </p>
      )}
    </aside>
  );
}

function cheapest(choices: ChoicesResult | null): { name: string; from: string | null }[] {
  const names = [...new Set((choices?.products ?? []).map((each) => each.name))];
  return names.map((name) => {
    const prices = (choices?.products ?? [])
      .filter((each) => each.name === name)
      .flatMap((each) => [each.isAvailable ? each.pricePerGpuHour : null, each.isSpotAvailable ? each.spotPricePerGpuHour : null])
      .filter((price) => price !== null)
      .sort((one, other) => one.amountMicros - other.amountMicros);
    return { name, from: prices[0] ? money(prices[0], 2) : null };
  });
}
