// Lists of the project’s objects, and forms that create them.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { ApiError, type MutationError, newIdempotencyKey } from "../api/request.ts";
import { explain } from "../format.ts";
import { runMutation } from "../live/run-mutation.ts";
import { confirm, type Question } from "./confirm.tsx";
import { Icon, type IconName } from "./icons.tsx";
import { Empty, Field, Panel, Problem } from "./parts.tsx";

export interface Column<Item> {
  readonly title: string;
  readonly show: (item: Item) => ComponentChildren;
  readonly isShort?: boolean; // never broken into lines
}

interface Removal<Item> {
  readonly verb: string;
  readonly warning: string;
  readonly isPossible?: (item: Item) => boolean;
  readonly run: (id: string) => Promise<readonly MutationError[]>;
}

export function ObjectList<Item extends { readonly id: string }>(props: {
  title: string;
  icon: IconName;
  items: readonly Item[] | null;
  problem: string | null;
  columns: readonly Column<Item>[];
  nameOf: (item: Item) => string;
  empty: ComponentChildren;
  aside?: ComponentChildren;
  removal?: Removal<Item> | undefined;
  edit?: ((item: Item) => void) | undefined;
  reload: () => void;
}) {
  const { items, removal, edit, reload } = props;
  const remove = async (item: Item) => {
    if (!removal) return;
    const name = props.nameOf(item);
    if (!(await confirm({ title: `${removal.verb} ${name}?`, body: removal.warning, action: removal.verb, isDangerous: true }))) return;
    await runMutation(() => removal.run(item.id), { rejected: `${name} was not changed` });
    reload();
  };
  return (
    <Panel
      title={props.title}
      aside={
        <div class="buttons">
          {props.aside}
          <button type="button" class="icon-button" aria-label="Refresh" onClick={reload}>
            <Icon name="refresh" size={16} />
          </button>
        </div>
      }
    >
      {props.problem && <Problem retry={reload}>{props.problem}</Problem>}
      {!items && !props.problem && <p class="muted body">Loading …</p>}
      {items?.length === 0 && (
        <Empty icon={props.icon} title="None yet">
          {props.empty}
        </Empty>
      )}
      {items && items.length > 0 && (
        <table class="grid-table cards-on-phone">
          <thead>
            <tr>
              {props.columns.map((column) => (
                <th key={column.title} scope="col">
                  {column.title}
                </th>
              ))}
              {(removal || edit) && (
                <th scope="col">
                  <span class="hidden">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {items.map((item) => (
              <tr key={item.id}>
                {props.columns.map((column) => (
                  <td key={column.title} data-label={column.title}>
                    <span class={column.isShort ? "short" : "words"}>{column.show(item)}</span>
                  </td>
                ))}
                {(removal || edit) && (
                  <td class="right">
                    <span class="row-actions">
                    {edit && (
                      <button type="button" class="button small" aria-label={`Edit ${props.nameOf(item)}`} onClick={() => edit(item)}>
                        Edit
                      </button>
                    )}
                    {removal && (removal.isPossible?.(item) ?? true) && (
                      <button type="button" class="button small danger" aria-label={`${removal.verb} ${props.nameOf(item)}`} onClick={() => remove(item)}>
                        {removal.verb}
                      </button>
                    )}
                    </span>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

const PLAIN = { type: "text", autocomplete: "off" } as const;
const SECRET = { type: "password", autocomplete: "new-password" } as const;

export interface Input {
  readonly name: string; // as in the mutation’s input: an error about it is shown beside the field
  readonly label: string;
  readonly hint?: string;
  readonly placeholder?: string;
  readonly isOptional?: boolean;
  readonly isSecret?: boolean;
  readonly isLong?: boolean; // several lines
  readonly options?: readonly { readonly value: string; readonly text: string }[];
}

export function ObjectForm(props: {
  title: string;
  action: string;
  succeeded: string;
  inputs: readonly Input[];
  initial?: Record<string, string>; // what is edited; another object needs another `key`
  submit: (values: Record<string, string>, idempotencyKey: string) => Promise<readonly MutationError[]>;
  done: () => void;
  note?: string | undefined;
  question?: Question; // to be confirmed before it is sent
  cancel?: () => void;
}) {
  const [values, setValues] = useState<Record<string, string>>(props.initial ?? {});
  const [errors, setErrors] = useState<Record<string, string>>({});
  const [isBusy, setBusy] = useState(false);
  // The same for another click after a lost response; another one for other values.
  const key = useRef(newIdempotencyKey());
  const valueOf = (input: Input) => values[input.name] ?? input.options?.[0]?.value ?? "";
  const change = (name: string, value: string) => {
    key.current = newIdempotencyKey();
    setValues((old) => ({ ...old, [name]: value }));
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (props.question && !(await confirm(props.question))) return;
    setBusy(true);
    try {
      const given = Object.fromEntries(props.inputs.map((input) => [input.name, input.isSecret ? valueOf(input) : valueOf(input).trim()]));
      const refused = await props.submit(given, key.current);
      setErrors(byField(refused, props.inputs));
      if (refused.length > 0) return;
      await runMutation(async () => [], { succeeded: props.succeeded });
      setValues({});
      key.current = newIdempotencyKey();
      props.done();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setErrors({ "": error.message });
    } finally {
      setBusy(false);
    }
  };
  const isIncomplete = props.inputs.some((input) => !input.isOptional && valueOf(input).trim() === "");
  return (
    <Panel title={props.title}>
      <form class="body" onSubmit={submit} autocomplete="off">
        {errors[""] && <Problem>{errors[""]}</Problem>}
        {props.inputs.map((input) => (
          <Field key={input.name} label={input.label} hint={input.hint} error={errors[input.name]}>
            {(ids) =>
              input.options ? (
                <select {...ids} value={valueOf(input)} onChange={(event) => change(input.name, event.currentTarget.value)}>
                  {input.options.map((option) => (
                    <option key={option.value} value={option.value}>
                      {option.text}
                    </option>
                  ))}
                </select>
              ) : input.isLong ? (
                <textarea {...ids} name={input.name} value={valueOf(input)} onInput={(event) => change(input.name, event.currentTarget.value)} spellcheck={false} />
              ) : (
                <input
                  {...ids}
                  {...(input.isSecret ? SECRET : PLAIN)}
                  name={input.name}
                  placeholder={input.placeholder}
                  value={valueOf(input)}
                  onInput={(event) => change(input.name, event.currentTarget.value)}
                />
              )
            }
          </Field>
        ))}
        {props.note && <p class="note muted">{props.note}</p>}
        <div class="buttons">
          <button type="submit" class="button" disabled={isIncomplete || isBusy}>
            {props.action}
          </button>
          {props.cancel && (
            <button type="button" class="button" onClick={props.cancel}>
              Cancel
            </button>
          )}
        </div>
      </form>
    </Panel>
  );
}

// Each error by the field that it is about; the others under "".
function byField(errors: readonly MutationError[], inputs: readonly Input[]): Record<string, string> {
  const found: Record<string, string> = {};
  for (const error of errors) {
    const field = inputs.find((input) => input.name === error.path[1])?.name ?? "";
    found[field] ??= explain(error);
  }
  return found;
}
