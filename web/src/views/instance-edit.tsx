// The edit tab: name, labels, ports, disk, webhook and recovery of an instance.
import { useState } from "preact/hooks";
import { ApiError, type MutationError, newIdempotencyKey, requestWithRetry } from "../api/request.ts";
import { type RecoveryChange, UpdateInstance, type UpdateInstanceInput } from "../generated/api.ts";
import { explain } from "../format.ts";
import { readPairs, readPorts, wholeNumber } from "../live/draft.ts";
import type { Detail } from "../live/instance.ts";
import { type RecoveryDraft, recoveryDraft, recoveryInput } from "../live/recovery.ts";
import { runMutation } from "../live/run-mutation.ts";
import { toast } from "../live/toasts.ts";
import { Field, Panel, Problem } from "../ui/parts.tsx";
import { UpgradePanel } from "./instance-upgrade.tsx";
import { RecoveryFields } from "./recovery-fields.tsx";
import { TestWebhookButton } from "./webhook-test.tsx";

interface Values {
  readonly name: string;
  readonly labels: string;
  readonly ports: string;
  readonly rootfsSizeGb: string;
  readonly webhook: string;
  readonly recovery: RecoveryDraft;
}

type Changes = Omit<UpdateInstanceInput, "id" | "idempotencyKey">;

export function EditTab({ instance, refresh }: { instance: Detail; refresh: () => void }) {
  // What the user began with. Values that were changed elsewhere meanwhile are not overwritten: the version is refused.
  const [base, setBase] = useState({ version: instance.version, values: valuesOf(instance) });
  const [values, setValues] = useState<Values>(base.values);
  const [errors, setErrors] = useState<readonly MutationError[]>([]);
  const [isSending, setSending] = useState(false);
  const changes = changesOf(base.values, values);
  const isChanged = Object.keys(changes).length > 0;
  const isOutdated = instance.version > base.version && textOf(valuesOf(instance)) !== textOf(base.values);
  const errorOf = (field: string) => {
    const found = errors.find((each) => each.path[1] === field);
    return found && explain(found);
  };
  const recoveryError = (part: string) => {
    const found = errors.find(({ path }) => path[1] === "recovery" && (PARTS.has(path.at(-1) ?? "") ? path.at(-1) : "") === part);
    return found && explain(found);
  };
  const others = errors.filter((each) => !FIELDS.has(each.path[1] ?? ""));
  const text = (field: Exclude<keyof Values, "recovery">) => ({
    value: values[field],
    onInput: (event: { currentTarget: { value: string } }) => setValues((old) => ({ ...old, [field]: event.currentTarget.value })),
  });
  const reset = () => {
    setBase({ version: instance.version, values: valuesOf(instance) });
    setValues(valuesOf(instance));
    setErrors([]);
  };

  const submit = async (event: Event) => {
    event.preventDefault();
    setSending(true);
    try {
      const { version, errors: refused } = await update(instance.id, { ...changes, expectedVersion: isOutdated ? base.version : instance.version });
      setErrors(refused);
      if (refused.length > 0) return;
      const undo = undoOf(base.values, changes);
      toast({ kind: "good", title: `${values.name.trim()} changed`, ...(undo && { undo: () => putBack(instance.id, undo, refresh) }) });
      setBase({ version: version ?? instance.version, values });
      refresh();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setErrors([{ code: error.code, message: error.message, path: [] }]);
    } finally {
      setSending(false);
    }
  };

  return (
    <div class="stack edits">
      <Panel title="Edit">
        <form class="body edit" onSubmit={submit} noValidate autocomplete="off">
          {others.map((each) => (
            <Problem key={each.code}>
              {explain(each)} <code>{each.code}</code>
            </Problem>
          ))}
          {isOutdated && (
            <p class="muted" role="status">
              The instance has changed since this form was filled.{" "}
              <button type="button" class="link" onClick={reset}>
                Load its present values
              </button>
            </p>
          )}
          <Field label="Name" error={errorOf("name")} hint="takes effect at once">
            {(ids) => <input {...ids} {...text("name")} />}
          </Field>
          <Field label="Labels" error={errorOf("labels")} hint="one name=value per line; takes effect at once">
            {(ids) => <textarea {...ids} {...text("labels")} spellcheck={false} />}
          </Field>
          <div class="pair">
            <Field label="Ports" error={errorOf("ports")} hint="e.g. 80, 22/tcp; the provider may restart the machine">
              {(ids) => <input {...ids} {...text("ports")} />}
            </Field>
            <Field label="Root disk, GB" error={errorOf("rootfsSizeGb")} hint="can only grow">
              {(ids) => <input {...ids} {...text("rootfsSizeGb")} inputMode="numeric" />}
            </Field>
          </div>
          <Field label="Webhook URL" error={errorOf("webhook")} hint="empty: no webhook">
            {(ids) => <input {...ids} {...text("webhook")} spellcheck={false} placeholder="https://…" />}
          </Field>
          <RecoveryFields
            value={values.recovery}
            change={(recovery) => setValues((old) => ({ ...old, recovery }))}
            errorOf={recoveryError}
            note={instance.recovery?.incident ? "a recovery is in progress; without this it ends" : undefined}
          />
          <div class="buttons">
            <button type="submit" class="button primary" disabled={!isChanged || isSending}>
              {isSending ? "Saving …" : "Save changes"}
            </button>
            <button type="button" class="button" disabled={!isChanged} onClick={reset}>
              Discard
            </button>
            {values.webhook.trim() && <TestWebhookButton url={values.webhook.trim()} />}
          </div>
        </form>
      </Panel>
      <UpgradePanel instance={instance} refresh={refresh} />
    </div>
  );
}

const FIELDS: ReadonlySet<string> = new Set(["name", "labels", "ports", "rootfsSizeGb", "webhook", "recovery"]);
// Those that an error is shown at; others are shown at the recovery as a whole.
const PARTS: ReadonlySet<string> = new Set(["on", "steps", "allowDataLoss", "regions", "billing", "giveUpAfter", "replaceBeforeReclaim", "drain"]);

async function update(id: string, changes: Changes): Promise<{ version: number | undefined; errors: readonly MutationError[] }> {
  const input = { id, idempotencyKey: newIdempotencyKey(), ...changes };
  const { instance, errors } = (await requestWithRetry(UpdateInstance, { input })).updateInstance;
  return { version: instance?.version, errors };
}

async function putBack(id: string, undo: Changes, refresh: () => void): Promise<void> {
  await runMutation(async () => (await update(id, undo)).errors, { succeeded: "Changes undone", rejected: "Changes not undone" });
  refresh();
}

function valuesOf(instance: Detail): Values {
  return {
    name: instance.name,
    labels: instance.labels.map((label) => `${label.key}=${label.value}`).join("\n"),
    ports: instance.ports.map((port) => `${port.port}/${port.type}`).join(", "),
    rootfsSizeGb: String(instance.rootfsSizeGb),
    webhook: instance.webhook?.url ?? "",
    recovery: recoveryDraft(instance.recovery),
  };
}

// Fields of a recovery that is switched off make no difference.
function textOf(values: Values): string {
  return JSON.stringify({ ...values, recovery: recoveryInput(values.recovery) });
}

function changesOf(old: Values, now: Values): Changes {
  return {
    ...(now.name.trim() !== old.name && { name: now.name.trim() }),
    ...(now.labels.trim() !== old.labels && { labels: readPairs(now.labels) }),
    ...(now.ports.trim() !== old.ports && { ports: readPorts(now.ports) }),
    ...(now.rootfsSizeGb.trim() !== old.rootfsSizeGb && { rootfsSizeGb: wholeNumber(now.rootfsSizeGb) ?? 0 }),
    ...(now.webhook.trim() !== old.webhook && { webhook: now.webhook.trim() ? { url: now.webhook.trim() } : { remove: true } }),
    ...(JSON.stringify(recoveryInput(now.recovery)) !== JSON.stringify(recoveryInput(old.recovery)) && { recovery: recoveryChange(now.recovery) }),
  };
}

function recoveryChange(draft: RecoveryDraft): RecoveryChange {
  const set = recoveryInput(draft);
  return set ? { set } : { remove: true };
}

// What takes effect at once can be put back; ports may restart the machine, and a disk does not shrink.
function undoOf(old: Values, changes: Changes): Changes | null {
  if (changes.ports || changes.rootfsSizeGb) return null;
  return {
    ...(changes.name && { name: old.name }),
    ...(changes.labels && { labels: readPairs(old.labels) }),
    ...(changes.webhook && { webhook: old.webhook ? { url: old.webhook } : { remove: true } }),
    ...(changes.recovery && { recovery: recoveryChange(old.recovery) }),
  };
}
