// Toasts, and the live region for screen readers.
import { announcement } from "../live/announcements.ts";
import { dismiss, toasts } from "../live/toasts.ts";
import { Shape } from "./chip.tsx";
import { Icon } from "./icons.tsx";

const TONES = { good: "good", bad: "bad", plain: "off" } as const;

export function Toasts() {
  return (
    <>
      <div class="hidden" role="status" aria-live="polite">
        {announcement.value}
      </div>
      <div class="toasts" role="status" aria-live="polite" aria-label="Messages">
        {toasts.value.map((each) => (
          <div key={each.id} class={`toast ${TONES[each.kind]}`}>
            <Shape tone={TONES[each.kind]} />
            <div>
              {each.href ? <a href={each.href}>{each.title}</a> : <strong>{each.title}</strong>}
              {each.text && <p>{each.text}</p>}
            </div>
            {each.undo && (
              <button
                type="button"
                class="button small"
                onClick={() => {
                  dismiss(each.id);
                  each.undo?.();
                }}
              >
                Undo
              </button>
            )}
            <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => dismiss(each.id)}>
              <Icon name="cross" size={14} />
            </button>
          </div>
        ))}
      </div>
    </>
  );
}
