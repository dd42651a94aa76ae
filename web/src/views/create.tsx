// The create form, with a quote that is updated while the user types.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, messageOf, type MutationError, newIdempotencyKey, request, requestWithRetry } from "../api/request.ts";
import { type Billing, CreateInstance, CreateObjects, CreateOptions, type CreateOptionsResult, GetQuote, InstanceToCopy } from "../generated/api.ts";
import { explain, money, perMonth } from "../format.ts";
import { BLANK, createInput, type Draft, draftOf, type Original, quoteInput, type TextField } from "../live/draft.ts";
import { errorsByField, hasField } from "../live/field-errors.ts";
import { PRESETS } from "../live/lifetime.ts";
import { useLoaded } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { go } from "../route.ts";
import { confirm, type Question } from "../ui/confirm.tsx";
import { Field, Problem, Segments } from "../ui/parts.tsx";
import { MachineFields } from "./create-machine.tsx";
import { MoreOptions } from "./create-more.tsx";
import { NetworkField } from "./create-network.tsx";
import { allTemplates, allVolumes, choices, type Template, type Volume } from "./create-options.ts";
import { type Quote, QuotePanel, useQuote } from "./create-quote.tsx";
import { regionOf, VolumesField } from "./create-volumes.tsx";
import { RecoveryFields } from "./recovery-fields.tsx";

const WAITS = [
  { seconds: "3600", text: "Wait for 1 hour" },
  { seconds: "21600", text: "Wait for 6 hours" },
  { seconds: "86400", text: "Wait for 1 day" },
  { seconds: "604800", text: "Wait for 7 days" },
];

export function CreateView({ given }: { given: Readonly<Record<string, string>> }) {
  const { like, product = "", region = "", wait = "" } = given;
  const [options, setOptions] = useState<CreateOptionsResult | null>(null);
  const [templates, setTemplates] = useState<Template[]>([]);
  const [volumes, setVolumes] = useState<Volume[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const [draft, setDraft] = useState<Draft>({ ...BLANK, productName: product, region, wait, isOnlyRegion: given["only"] === "1" });
  const [original, setOriginal] = useState<Original | null>(null);
  const [errors, setErrors] = useState<readonly MutationError[]>([]);
  const [isSending, setSending] = useState(false);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  // One idempotency key per request: sent twice, it runs once. A changed form gets a new key.
  const key = useRef(newIdempotencyKey());

  const load = () => {
    setProblem(null);
    Promise.all([request(CreateOptions, {}), allTemplates(), allVolumes(), like ? request(InstanceToCopy, { id: like }) : null])
      .then(([loaded, found, disks, copied]) => {
        setOptions(loaded);
        setTemplates(found);
        setVolumes(disks);
        const usable = found.filter((each) => each.problems.length === 0);
        const source = copied?.instance;
        if (copied && !source) setProblem("The instance to copy does not exist, or belongs to another project.");
        setOriginal(source ?? null);
        setDraft((old) => {
          const draft = source ? draftOf(source) : old;
          return {
            ...draft,
            kind: loaded.cpuProducts.some((each) => each.name === draft.productName) ? "CPU" : draft.kind,
            productName: draft.productName || choices(loaded.products)[0]?.name || "",
            templateId: draft.templateId || usable[0]?.id || "",
            source: usable.length ? draft.source : "image",
          };
        });
      })
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  useEffect(load, []);
  const objects = useLoaded(CreateObjects, {});

  const { quote, isPending } = useQuote(draft);
  const change = (part: Partial<Draft>) => {
    key.current = newIdempotencyKey();
    setErrors([]);
    setDraft((old) => ({ ...old, ...part }));
    setTouched((old) => new Set([...old, ...Object.keys(part)]));
  };

  // The error shown at each field: the first one of the quote, else of the create request.
  const fieldErrors = useMemo(() => errorsByField([...(quote?.errors ?? []), ...errors]), [quote, errors]);
  const errorOf = (field: string) => (touched.has(field.split(".")[0] ?? "") || errors.length > 0 ? fieldErrors.get(field) : undefined);
  const otherErrors = errors.filter((each) => !hasField(each));
  const network = objects.data?.networks.nodes.find((each) => each.id === draft.networkId);
  const fixedRegion = regionOf(draft.volumes, volumes) ?? network?.region ?? null;

  const submit = async (event: Event) => {
    event.preventDefault();
    setSending(true);
    try {
      // Checked first, so that what is confirmed is what the server would accept, at the price of this moment.
      const [{ quote: present }, { createInstance: checked }] = await Promise.all([
        request(GetQuote, { input: quoteInput(draft) }),
        request(CreateInstance, { input: { ...createInput(draft, key.current), validateOnly: true } }),
      ]);
      setErrors(checked.errors);
      if (checked.errors.length > 0 || !(await confirm(questionOf(draft, present)))) return;
      const { createInstance } = await requestWithRetry(CreateInstance, { input: createInput(draft, key.current) });
      if (createInstance.instance) return go(`#/instances/${createInstance.instance.id}`);
      setErrors(createInstance.errors);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setErrors([{ code: error.code, message: error.message, path: [] }]);
    } finally {
      setSending(false);
    }
  };

  const text = (field: TextField) => ({
    value: draft[field],
    onInput: (event: { currentTarget: { value: string } }) => change({ [field]: event.currentTarget.value }),
  });
  const offers = draft.kind === "CPU" ? options?.cpuProducts : options?.products;
  const regions = [...new Set((offers ?? []).filter((each) => each.name === draft.productName).map((each) => each.region.code))];

  return (
    <div class="view">
      <header class="view-head">
        <h1>{original ? `Create one like ${original.name}` : "Create instance"}</h1>
      </header>
      {problem && <Problem retry={load}>{problem}</Problem>}
      {original && <NotCopied original={original} />}
      <div class="create">
        <form class="panel" onSubmit={submit} noValidate>
          <Field label="Name" hint="1 to 255 characters, unique in the project" error={errorOf("name")}>
            {(ids) => <input {...ids} {...text("name")} autocomplete="off" placeholder="trainer" />}
          </Field>
          <MachineFields draft={draft} options={options} {...{ text, errorOf, change }} />
          <div class="field">
            <span>Source</span>
            <Segments
              label="Source"
              value={draft.source}
              onChange={(source) => change({ source })}
              options={[
                { value: "template", text: "Template" },
                { value: "image", text: "Image" },
              ]}
            />
          </div>
          {draft.source === "template" ? (
            <Field
              label="Template"
              error={errorOf("templateId")}
              hint={templates.find((each) => each.id === draft.templateId)?.image ?? "Stored at the provider"}
            >
              {(ids) => (
                <select {...ids} value={draft.templateId} onChange={(event) => change({ templateId: event.currentTarget.value })}>
                  {templates.map((each) => (
                    <option key={each.id} value={each.id} disabled={each.problems.length > 0}>
                      {each.name} · {each.channel.toLowerCase()}
                      {each.problems.length > 0 && " · not usable"}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          ) : (
            <div class="pair">
              <Field label="Image" hint="image reference, as for docker pull" error={errorOf("image")}>
                {(ids) => <input {...ids} {...text("image")} placeholder="nginx:latest" autocomplete="off" spellcheck={false} />}
              </Field>
              <Field label="Registry credential" hint={objects.problem ?? <a href="#/account/registries">Store one for private images</a>} error={errorOf("registryAuthId")}>
                {(ids) => (
                  <select {...ids} value={draft.registryAuthId} onChange={(event) => change({ registryAuthId: event.currentTarget.value })}>
                    <option value="">None: a public image</option>
                    {objects.data?.registryAuths.map((each) => (
                      <option key={each.id} value={each.id}>
                        {each.name} · {each.username}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
            </div>
          )}
          <div class="pair">
            <Field label="Ports" hint="e.g. 80, 22/tcp; the default type is http" error={errorOf("ports")}>
              {(ids) => <input {...ids} {...text("ports")} placeholder={draft.source === "template" ? "from the template" : "none"} autocomplete="off" />}
            </Field>
            <Field label="Preferred region" error={errorOf("region")} hint={fixedRegion ? `the region of its ${draft.volumes.length > 0 ? "volumes" : "network"}` : draft.isOnlyRegion ? "no other region is tried" : "other regions are tried next"}>
              {(ids) => (
                <select {...ids} value={fixedRegion ?? draft.region} disabled={fixedRegion !== null} onChange={(event) => change({ region: event.currentTarget.value })}>
                  <option value="">Any</option>
                  {regions.map((code) => (
                    <option key={code} value={code}>
                      {code}
                    </option>
                  ))}
                  {[draft.region, fixedRegion].map((code) => code && !regions.includes(code) && <option value={code}>{code}</option>)}
                </select>
              )}
            </Field>
          </div>
          {draft.region && !fixedRegion && (
            <label class="check">
              <input type="checkbox" checked={draft.isOnlyRegion} onChange={(event) => change({ isOnlyRegion: event.currentTarget.checked })} />
              Only in {draft.region}
            </label>
          )}
          <VolumesField draft={draft} volumes={volumes} region={network?.region ?? draft.region} errorOf={errorOf} change={change} />
          <NetworkField draft={draft} networks={objects.data?.networks.nodes} region={regionOf(draft.volumes, volumes)} {...{ errorOf, change }} />
          {draft.kind !== "CPU" && <div class="field">
            <span>Billing</span>
            <Segments<Billing>
              label="Billing"
              value={draft.billing}
              onChange={(billing) => change({ billing })}
              options={[
                { value: "SPOT_THEN_ON_DEMAND", text: "Spot, then on-demand" },
                { value: "SPOT", text: "Spot only" },
                { value: "ON_DEMAND", text: "On-demand" },
              ]}
            />
            <p class="note">Spot is cheaper, but the provider can reclaim the instance at any time.</p>
          </div>}
          <Field label="Lifetime" hint="enforced by the server, also if your program is gone" error={errorOf("lifetime")}>
            {(ids) => (
              <select {...ids} value={draft.lifetime} onChange={(event) => change({ lifetime: event.currentTarget.value as Draft["lifetime"] })}>
                <option value="">No limit, or the project’s default</option>
                {draft.copied.lifetime && <option value="same">As {original?.name}</option>}
                {PRESETS.map(({ value, text }) => (
                  <option key={value} value={value}>
                    {text}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <RecoveryFields value={draft.recovery} change={(recovery) => change({ recovery })} errorOf={(part) => errorOf(part ? `recovery.${part}` : "recovery")} />
          <div class="pair short">
            <Field label="Without capacity" error={errorOf("onNoCapacity.wait") ?? errorOf("onNoCapacity")} hint="waiting costs nothing">
              {(ids) => (
                <select {...ids} value={draft.wait} onChange={(event) => change({ wait: event.currentTarget.value })}>
                  <option value="">Fail</option>
                  {WAITS.map(({ seconds, text }) => (
                    <option key={seconds} value={seconds}>
                      {text}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            {draft.wait && (
              <Field label="Priority" error={errorOf("onNoCapacity.priority")} hint="0 to 100; the highest of the project goes first">
                {(ids) => <input {...ids} {...text("priority")} type="number" min={0} max={100} inputMode="numeric" placeholder="50" />}
              </Field>
            )}
          </div>
          <MoreOptions draft={draft} quote={quote} isOpen={original !== null} {...{ text, errorOf, change }} />
          {otherErrors.map((each) => (
            <Problem key={each.code}>
              {explain(each)} <code>{each.code}</code>
            </Problem>
          ))}
          <div class="submit">
            <button type="submit" class="button primary" disabled={isSending || !may("OPERATOR")}>
              {isSending ? "Creating …" : "Create instance"}
            </button>
            <span class="muted">{may("OPERATOR") ? "You will be asked to confirm the price." : "Your token is read-only."}</span>
          </div>
        </form>
        <QuotePanel quote={quote} isPending={isPending} errors={fieldErrors} />
      </div>
    </div>
  );
}

function questionOf(draft: Draft, { best }: Quote): Question {
  const lifetime = draft.lifetime ? " Its lifetime is limited." : " No lifetime is set: it is charged until you stop or delete it.";
  return {
    title: `Create ${draft.name.trim()}?`,
    body: best
      ? `${money(best.pricePerHour)} per hour (≈ ${perMonth(best.pricePerHour)} per month) in ${best.region}, ${best.billingMode === "SPOT" ? "spot" : "on-demand"}, charged from the moment it runs.${lifetime}`
      : draft.wait
        ? `No region has it in stock now. It waits for that, and is created and charged without another question.${lifetime}`
        : "No region has it in stock now. The create is tried in every region, and fails if none has it by then.",
    action: "Create",
  };
}

// Secrets can’t be read back, and volumes and networks belong to one region.
function NotCopied({ original }: { original: Original }) {
  const secrets = original.env.filter((each) => each.secret).map((each) => each.key);
  return (
    <div class="banner off" role="status">
      <div>
        Everything is as {original.name} has it; choose another region or product, then create it.
        {secrets.length > 0 && ` Secret variables are not copied: add ${secrets.join(", ")} under Environment.`}
        {" Volumes, networks and registry credentials are not copied."}
      </div>
    </div>
  );
}
