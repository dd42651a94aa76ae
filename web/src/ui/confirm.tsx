// The confirmation dialog, shown before every action that deletes data or costs money.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Question {
  readonly title: string;
  readonly body: ComponentChildren;
  readonly action: string;
  readonly isDangerous?: boolean;
  // The label of the button that closes the dialog.
  readonly dismiss?: string;
  // Text to type before the button is enabled: for actions on many instances that cannot be undone.
  readonly typed?: string;
}

const current = signal<(Question & { answer: (isConfirmed: boolean) => void }) | null>(null);

export function confirm(question: Question): Promise<boolean> {
  return new Promise((resolve) => {
    current.value = { ...question, answer: resolve };
  });
}

export function Confirmation() {
  const question = current.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");

  useEffect(() => {
    if (!question) return;
    setTyped("");
    dialog.current?.showModal();
  }, [question]);

  if (!question) return null;
  const answer = (isConfirmed: boolean) => {
    // Closed before it is removed, so that the browser restores the focus.
    dialog.current?.close();
    current.value = null;
    question.answer(isConfirmed);
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
              Type <code>{question.typed}</code> to confirm
            </span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
          </label>
        )}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => answer(false)}>
            {question.dismiss ?? "Cancel"}
          </button>
          <button type="submit" class={`button ${question.isDangerous ? "danger" : "primary"}`} disabled={isBlocked}>
            {question.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
