// The fields of a recovery, in the form that creates an instance and in the one that edits it.
import type { ComponentChildren } from "preact";
import type { RecoveryBilling, RecoveryTrigger } from "../generated/api.ts";
import { type RecoveryDraft, STEPS, withDataLoss } from "../live/recovery.ts";
import { Field } from "../ui/parts.tsx";

interface Props {
  readonly value: RecoveryDraft;
  readonly change: (value: RecoveryDraft) => void;
  readonly errorOf: (part: string) => string | undefined; // "" for the recovery as a whole
  readonly note?: string | undefined;
}

const TRIGGERS: readonly { value: RecoveryTrigger; text: string }[] = [
  { value: "RECLAIM", text: "a spot reclaim" },
  { value: "LOSS", text: "the loss of its machine" },
];

export function RecoveryFields({ value, change, errorOf, note }: Props) {
  const set = (part: Partial<RecoveryDraft>) => change({ ...value, ...part });
  const text = (field: "regions" | "hours" | "drain") => ({
    value: value[field],
    autocomplete: "off",
    onInput: (event: { currentTarget: { value: string } }) => set({ [field]: event.currentTarget.value }),
  });
  return (
    <div class="recovery" role="group" aria-label="Recovery">
      <Checks title="Recovery" error={errorOf("")} note={note ?? "comes back under its own id, with the same settings"}>
        <Check text="Recover it by itself" checked={value.isOn} onChange={(isOn) => set({ isOn })} />
      </Checks>
      {value.isOn && (
        <>
          <div class="pair">
            <Checks title="After" error={errorOf("on")}>
              {TRIGGERS.map((each) => (
                <Check key={each.value} text={each.text} checked={value.on.includes(each.value)} onChange={(isOn) => set({ on: toggled(TRIGGERS, value.on, each.value, isOn) })} />
              ))}
            </Checks>
            <Checks title="The machine’s own disks" error={errorOf("allowDataLoss")} note="volumes are always kept">
              <Check text="Their data may be lost" checked={value.allowDataLoss} onChange={(isOn) => set(withDataLoss(isOn))} />
            </Checks>
          </div>
          <Checks title="Steps, in this order" error={errorOf("steps")} note={value.allowDataLoss ? undefined : "the others lose the data on its own disks"}>
            {STEPS.map((each) => (
              <Check
                key={each.value}
                text={each.text}
                checked={value.steps.includes(each.value)}
                disabled={!value.allowDataLoss && each.value !== "SAME"}
                onChange={(isOn) => set({ steps: toggled(STEPS, value.steps, each.value, isOn) })}
              />
            ))}
          </Checks>
          <Checks title="Before a reclaim" error={errorOf("replaceBeforeReclaim")} note="once it is healthy, it takes over; both are paid for until then">
            <Check
              text="Make another machine when the reclaim is announced"
              checked={value.replaceBeforeReclaim}
              disabled={!value.allowDataLoss}
              onChange={(replaceBeforeReclaim) => set({ replaceBeforeReclaim })}
            />
          </Checks>
          <div class="pair">
            <Field label="Regions of a new machine" hint="empty: those of the instance" error={errorOf("regions")}>
              {(ids) => <input {...ids} {...text("regions")} placeholder="AS-SGP-02, US-CA-06" spellcheck={false} />}
            </Field>
            <Field label="Billing of a new machine" error={errorOf("billing")}>
              {(ids) => (
                <select {...ids} value={value.billing} onChange={(event) => set({ billing: event.currentTarget.value as RecoveryBilling })}>
                  <option value="SAME">As requested</option>
                  <option value="ON_DEMAND_AFTER">Spot, then on-demand</option>
                </select>
              )}
            </Field>
          </div>
          <div class="pair">
            <Field label="Give up after, hours" hint="up to 720" error={errorOf("giveUpAfter")}>
              {(ids) => <input {...ids} {...text("hours")} inputMode="decimal" />}
            </Field>
            <Field label="Old machine stays, seconds" hint="after the new one has taken over; up to 3600" error={errorOf("drain")}>
              {(ids) => <input {...ids} {...text("drain")} inputMode="numeric" />}
            </Field>
          </div>
        </>
      )}
    </div>
  );
}

function Checks({ title, note, error, children }: { title: string; note?: string | undefined; error: string | undefined; children: ComponentChildren }) {
  return (
    <div class={`field ${error ? "wrong" : ""}`} role="group" aria-label={title}>
      <span>{title}</span>
      {children}
      <p class="note" aria-live="polite">
        {error ?? note}
      </p>
    </div>
  );
}

function Check({ text, onChange, ...given }: { text: string; checked: boolean; disabled?: boolean; onChange: (isOn: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" {...given} onChange={(event) => onChange(event.currentTarget.checked)} />
      {text}
    </label>
  );
}

// In the order of `all`.
function toggled<Value extends string>(all: readonly { value: Value }[], old: readonly Value[], value: Value, isOn: boolean): Value[] {
  return all.map((each) => each.value).filter((each) => (each === value ? isOn : old.includes(each)));
}
