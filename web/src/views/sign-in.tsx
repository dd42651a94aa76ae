// The sign-in form, shown without a valid token.
import { useState } from "preact/hooks";
import { offersLogin, signIn, signInError } from "../session.ts";
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
        <h1>Sign in</h1>
        {offersLogin && (
          <a class="button primary wide" href="/login">
            Log in with your account
          </a>
        )}
        <p class="muted">
          Enter a token. An administrator creates one with <code>pilotlight token create NAME --role OPERATOR</code>. It is
          stored in this tab only.
        </p>
        <Field label="Token" error={signInError.value ?? undefined} hint="starts with pl_">
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
