// A button that copies a text to the clipboard.
import { useState } from "preact/hooks";
import { Icon } from "./icons.tsx";

export function Copy({ text, label }: { text: string; label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await writeToClipboard(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="icon-button" aria-label={isDone ? "Copied" : `Copy ${label}`} title={`Copy ${label}`} onClick={copy}>
      <Icon name={isDone ? "check" : "copy"} size={16} />
    </button>
  );
}

// Browsers offer navigator.clipboard only over https and on localhost.
async function writeToClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
