// What most creates leave out: limits, start, tools, variables, labels, webhook, health check.
import type { ToolInput } from "../generated/api.ts";
import { Field } from "../ui/parts.tsx";
import type { FieldProps } from "./create-machine.tsx";
import type { Quote } from "./create-quote.tsx";

interface Props extends FieldProps {
  readonly quote: Quote | null;
  readonly isOpen: boolean;
}

export function MoreOptions({ draft, quote, isOpen, text, errorOf, change }: Props) {
  return (
    <details open={isOpen}>
      <summary>Options: price limit, disk, start command, tools, environment, labels, webhook, health check</summary>
      <div class="pair">
        <Field label="Maximum price per hour, $" error={errorOf("maxHourlyPrice")}>
          {(ids) => <input {...ids} {...text("maxPrice")} inputMode="decimal" placeholder="no limit" autocomplete="off" />}
        </Field>
        <Field label="Root disk, GB" error={errorOf("rootfsSizeGb")} hint={quote?.rootfsSizeGb ? `quoted with ${quote.rootfsSizeGb} GB` : "10 to 1000"}>
          {(ids) => <input {...ids} {...text("rootfsSizeGb")} inputMode="numeric" placeholder="default" autocomplete="off" />}
        </Field>
      </div>
      <div class="pair">
        <Field label="Entrypoint" error={errorOf("entrypoint")}>
          {(ids) => <input {...ids} {...text("entrypoint")} placeholder={defaultOf(draft.source)} autocomplete="off" spellcheck={false} />}
        </Field>
        <Field label="Command" error={errorOf("command")}>
          {(ids) => <input {...ids} {...text("command")} placeholder={defaultOf(draft.source)} autocomplete="off" spellcheck={false} />}
        </Field>
      </div>
      <div class="pair">
        <div class={`field ${errorOf("tools") ? "wrong" : ""}`} role="group" aria-label="Tools">
          <span>Tools</span>
          {TOOLS.map(({ name, words, port }) => (
            <label key={name} class="check">
              <input
                type="checkbox"
                checked={draft.tools.some((each) => each.name === name)}
                onChange={(event) => change({ tools: toggled(draft.tools, name, event.currentTarget.checked) })}
              />
              {words}, port {draft.tools.find((each) => each.name === name)?.port ?? port}
            </label>
          ))}
          <p class="note" aria-live="polite">
            {errorOf("tools") ?? (draft.source === "template" ? "none chosen: the template’s" : "run beside the container")}
          </p>
        </div>
        {draft.kind !== "CPU" && (
          <Field label="Lowest CUDA version" hint="of the node’s driver, e.g. 12.4" error={errorOf("minCudaVersion")}>
            {(ids) => <input {...ids} {...text("minCudaVersion")} inputMode="decimal" placeholder="any" autocomplete="off" />}
          </Field>
        )}
      </div>
      <div class="pair">
        <Field label="Environment" hint="one NAME=value per line; values of names like API_KEY or TOKEN are never shown again" error={errorOf("env")}>
          {(ids) => <textarea {...ids} {...text("env")} spellcheck={false} />}
        </Field>
        <Field label="Labels" hint="one name=value per line" error={errorOf("labels")}>
          {(ids) => <textarea {...ids} {...text("labels")} spellcheck={false} />}
        </Field>
      </div>
      <div class="pair">
        <Field label="Webhook URL" hint="receives signed events of the instance" error={errorOf("webhookUrl")}>
          {(ids) => <input {...ids} {...text("webhookUrl")} placeholder="https://…" autocomplete="off" spellcheck={false} />}
        </Field>
        <Field label="Health check path" hint="path requested on http ports" error={errorOf("healthCheck")}>
          {(ids) => <input {...ids} {...text("healthPath")} placeholder="/" autocomplete="off" spellcheck={false} />}
        </Field>
      </div>
    </details>
  );
}

const TOOLS: readonly { name: ToolInput["name"]; words: string; port: number }[] = [
  { name: "SSH", words: "SSH server", port: 22 },
  { name: "JUPYTER", words: "Jupyter", port: 8888 },
];

// A tool that was copied from another instance keeps its port.
function toggled(tools: readonly ToolInput[], name: ToolInput["name"], isOn: boolean): ToolInput[] {
  const others = tools.filter((each) => each.name !== name);
  return isOn ? [...others, { name }] : others;
}

function defaultOf(source: "template" | "image"): string {
  return source === "template" ? "the template’s" : "the image’s";
}
