// Nothing that destroys or costs happens without a second look.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Question {
  readonly title: string;
  readonly body: ComponentChildren;
  readonly action: string;
  readonly isDangerous?: boolean;
  // Must be typed before the button works: for what can't be taken back and hits many.
  readonly typed?: string;
}

const asked = signal<(Question & { answer: (yes: boolean) => void }) | null>(null);

export function confirmed(question: Question): Promise<boolean> {
  return new Promise((resolve) => {
    asked.value = { ...question, answer: resolve };
  });
}

export function Confirmation() {
  const question = asked.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");

  useEffect(() => {
    if (!question) return;
    setTyped("");
    dialog.current?.showModal();
  }, [question]);

  if (!question) return null;
  const answer = (yes: boolean) => {
    // Closed before it goes away, so that the browser gives the focus back to where it was.
    dialog.current?.close();
    asked.value = null;
    question.answer(yes);
  };
  const isBlocked = question.typed !== undefined && typed !== question.typed;
  return (
    <dialog ref={dialog} aria-labelledby="question" onCancel={() => answer(false)} class="dialog">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isBlocked) answer(true);
        }}
      >
        <h2 id="question">{question.title}</h2>
        <div class="dialog-body">{question.body}</div>
        {question.typed !== undefined && (
          <label class="field">
            <span>
              Type <code>{question.typed}</code> to go on
            </span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
          </label>
        )}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => answer(false)}>
            Cancel
          </button>
          <button type="submit" class={`button ${question.isDangerous ? "danger" : "primary"}`} disabled={isBlocked}>
            {question.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
