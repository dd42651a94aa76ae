// The create form’s product: one with GPUs and their number, or a machine without GPUs.
import { useMemo } from "preact/hooks";
import type { CreateOptionsResult } from "../generated/api.ts";
import { money } from "../format.ts";
import type { Draft, TextField } from "../live/draft.ts";
import { Field } from "../ui/parts.tsx";
import { choices } from "./create-options.ts";

export interface FieldProps {
  readonly draft: Draft;
  readonly text: (field: TextField) => { value: string; onInput: (event: { currentTarget: { value: string } }) => void };
  readonly errorOf: (field: string) => string | undefined;
  readonly change: (part: Partial<Draft>) => void;
}

export function MachineFields({ draft, options, text, errorOf, change }: FieldProps & { options: CreateOptionsResult | null }) {
  const gpu = useMemo(() => choices(options?.products ?? []), [options]);
  const cpu = useMemo(() => choices(options?.cpuProducts ?? []), [options]);
  const isKnown = [...gpu, ...cpu].some((each) => each.name === draft.productName);
  const choose = (name: string) =>
    change({ productName: name, kind: cpu.some((each) => each.name === name) ? "CPU" : "GPU", region: "", isOnlyRegion: false });
  return (
    <div class={draft.kind === "CPU" ? "" : "pair narrow"}>
      <Field label="Product" error={errorOf("productName")}>
        {(ids) => (
          <select {...ids} value={draft.productName} onChange={(event) => choose(event.currentTarget.value)}>
            {!isKnown && <option value={draft.productName}>{draft.productName || "Loading …"}</option>}
            {[
              { label: "With GPUs", per: "/GPU hour", found: gpu },
              { label: "CPU only", per: "/hour", found: cpu },
            ].map(({ label, per, found }) => (
              <optgroup key={label} label={label}>
                {found.map((each) => (
                  <option key={each.name} value={each.name}>
                    {each.name} · {each.from ? `from ${money(each.from, 2)}${per} · ` : ""}
                    {each.stock}
                  </option>
                ))}
              </optgroup>
            ))}
          </select>
        )}
      </Field>
      {draft.kind !== "CPU" && (
        <Field label="GPUs" hint="1 to 8" error={errorOf("gpuCount")}>
          {(ids) => <input {...ids} {...text("gpuCount")} type="number" min={1} max={8} inputMode="numeric" />}
        </Field>
      )}
    </div>
  );
}
