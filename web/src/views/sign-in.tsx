import { useState } from "preact/hooks";
import { refused, signIn } from "../session.ts";
import { Flame } from "../ui/icons.tsx";
import { Field } from "../ui/parts.tsx";

export function SignIn() {
  const [secret, setSecret] = useState("");
  return (
    <main class="sign-in">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (secret.trim()) signIn(secret.trim());
        }}
      >
        <p class="brand">
          <Flame />
          <span>Pilotlight</span>
        </p>
        <h1>Who is there?</h1>
        <p class="muted">
          Paste a token. Whoever runs this server makes one with <code>pilotlight token create NAME --role OPERATOR</code>. It
          is kept in this tab only.
        </p>
        <Field label="Token" error={refused.value ?? undefined} hint="begins with pl_">
          {(ids) => (
            <input
              {...ids}
              type="password"
              autocomplete="off"
              spellcheck={false}
              value={secret}
              onInput={(event) => setSecret(event.currentTarget.value)}
            />
          )}
        </Field>
        <button type="submit" class="button primary wide" disabled={!secret.trim()}>
          Sign in
        </button>
      </form>
    </main>
  );
}
