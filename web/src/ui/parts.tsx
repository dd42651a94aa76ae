// Components shared by the views.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Icon, type IconName } from "./icons.tsx";

export function Empty({ icon, title, children }: { icon: IconName; title: string; children: ComponentChildren }) {
  return (
    <div class="empty">
      <span class="empty-icon">
        <Icon name={icon} size={24} />
      </span>
      <h2>{title}</h2>
      <div>{children}</div>
    </div>
  );
}

export function Panel({ title, aside, children }: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class="panel" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export function Problem({ children, retry }: { children: ComponentChildren; retry?: () => void }) {
  return (
    <div class="banner bad" role="alert">
      <Icon name="warn" />
      <div>{children}</div>
      {retry && (
        <button type="button" class="button" onClick={retry}>
          Retry
        </button>
      )}
    </div>
  );
}

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  error?: string | undefined;
  children: (ids: { id: string; "aria-describedby": string; "aria-invalid": boolean }) => JSX.Element;
}

// The note always takes up space, so that nothing moves when an error appears.
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  return (
    <div class={`field ${error ? "wrong" : ""}`}>
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": `${id}-note`, "aria-invalid": error !== undefined })}
      <p id={`${id}-note`} class="note" aria-live="polite">
        {error ?? hint}
      </p>
    </div>
  );
}

export function Segments<Value extends string>(props: {
  label: string;
  value: Value;
  options: readonly { value: Value; text: ComponentChildren }[];
  onChange: (value: Value) => void;
}) {
  const name = useId();
  return (
    <fieldset class="segments">
      <legend class="hidden">{props.label}</legend>
      {props.options.map((option) => (
        <label key={option.value} class={option.value === props.value ? "on" : ""}>
          <input
            type="radio"
            name={name}
            checked={option.value === props.value}
            onChange={() => props.onChange(option.value)}
          />
          {option.text}
        </label>
      ))}
    </fieldset>
  );
}

// Scrolls a row of tabs sideways, and nothing else.
export function bringIntoView(row: HTMLElement | null, selector: string): void {
  const chosen = row?.querySelector(selector)?.getBoundingClientRect();
  const shown = row?.getBoundingClientRect();
  if (!row || !chosen || !shown) return;
  if (chosen.left < shown.left || chosen.right > shown.right) row.scrollLeft += (chosen.left + chosen.right - shown.left - shown.right) / 2;
}

export function Tabs<Value extends string>(props: {
  label: string;
  value: Value;
  tabs: readonly { value: Value; text: string; count?: number }[];
  onChange: (value: Value) => void;
  children: ComponentChildren;
}) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => bringIntoView(list.current, "[aria-selected=true]"), [props.value]);
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const index = props.tabs.findIndex((tab) => tab.value === props.value);
    const next = props.tabs[(index + step + props.tabs.length) % props.tabs.length];
    if (!next) return;
    event.preventDefault();
    props.onChange(next.value);
    list.current?.querySelector<HTMLElement>(`[data-tab="${next.value}"]`)?.focus();
  };
  return (
    <div class="tabs">
      <div class="tab-list" role="tablist" aria-label={props.label} ref={list} onKeyDown={onKey}>
        {props.tabs.map((tab) => (
          <button
            key={tab.value}
            type="button"
            role="tab"
            id={`${id}-${tab.value}`}
            data-tab={tab.value}
            aria-selected={tab.value === props.value}
            aria-controls={`${id}-panel`}
            tabIndex={tab.value === props.value ? 0 : -1}
            onClick={() => props.onChange(tab.value)}
          >
            {tab.text}
            {tab.count !== undefined && <span class="count">{tab.count}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${props.value}`} class="tab-panel" tabIndex={0}>
        {props.children}
      </div>
    </div>
  );
}
