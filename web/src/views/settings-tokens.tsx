// The project’s tokens: an ADMIN creates and revokes them here.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import { CreateToken, RevokeToken, type Role, Tokens, type TokensResult } from "../generated/api.ts";
import { explain, words } from "../format.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may, viewer } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { confirm } from "../ui/confirm.tsx";
import { Copy } from "../ui/copy.tsx";
import { Field, Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";

type Token = TokensResult["tokens"]["nodes"][number];

export function TokensPanel() {
  const [tokens, setTokens] = useState<readonly Token[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const isAdmin = viewer.value !== null && may("ADMIN");
  const load = () => {
    if (!isAdmin) return;
    request(Tokens, {})
      .then((loaded) => setTokens(loaded.tokens.nodes))
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  useEffect(load, [isAdmin]);

  const revoke = async (token: Token) => {
    const isMine = token.id === viewer.value?.token.id;
    const isConfirmed = await confirm({
      title: `Revoke ${token.name}?`,
      body: `Clients that use it lose access within seconds. Operations that it requested continue.${isMine ? " You are signed in with this token." : ""}`,
      action: "Revoke",
      isDangerous: true,
    });
    if (!isConfirmed) return;
    await runMutation(async () => (await requestWithRetry(RevokeToken, { input: { id: token.id } })).revokeToken.errors, { rejected: "Token not revoked" });
    load();
  };

  if (!isAdmin) return null;
  return (
    <Panel title="Tokens">
      {problem && <Problem>{problem}</Problem>}
      <table class="grid-table cards-on-phone">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Role</th>
            <th scope="col">Last used</th>
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {(tokens ?? []).map((token) => (
            <tr key={token.id}>
              <td data-label="Name">
                <span>
                  {token.name} <span class="muted mono">…{token.hint}</span>
                </span>
              </td>
              <td data-label="Role">{words(token.role)}</td>
              <td data-label="Last used">
                {token.lastUsedAt ? (
                  <span>
                    <Since at={token.lastUsedAt} /> ago
                  </span>
                ) : (
                  "never"
                )}
              </td>
              <td class="right">
                {isInactive(token) ? (
                  <Chip tone="off">{token.revokedAt ? "Revoked" : "Expired"}</Chip>
                ) : (
                  <button type="button" class="button small danger" aria-label={`Revoke ${token.name}`} onClick={() => revoke(token)}>
                    Revoke
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="body foot">
        {secret && (
          <div class="secret" role="status">
            <span>
              <strong>Copy it now, it is shown only once:</strong> <span class="mono">{secret}</span>
            </span>
            <Copy text={secret} label="the token" />
          </div>
        )}
        <NewToken
          onCreated={(created) => {
            setSecret(created);
            load();
          }}
        />
      </div>
    </Panel>
  );
}

function NewToken({ onCreated }: { onCreated: (secret: string) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("OPERATOR");
  const [days, setDays] = useState("");
  const [error, setError] = useState<string | undefined>();
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      const expiresAt = days ? new Date(Date.now() + Number(days) * 86_400_000).toISOString() : null;
      const payload = (await request(CreateToken, { input: { name: name.trim(), role, expiresAt } })).createToken;
      setError(payload.errors[0] && explain(payload.errors[0]));
      if (!payload.secret) return;
      setName("");
      onCreated(payload.secret);
    } catch (caught) {
      setError(messageOf(caught));
    }
  };
  return (
    <form class="inline-form" onSubmit={submit}>
      <Field label="New token’s name" error={error} hint="what it is used for">
        {(ids) => <input {...ids} value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" placeholder="backend" />}
      </Field>
      <Field label="Role">
        {(ids) => (
          <select {...ids} value={role} onChange={(event) => setRole(event.currentTarget.value as Role)}>
            <option value="READER">Reader</option>
            <option value="OPERATOR">Operator</option>
            <option value="ADMIN">Admin</option>
          </select>
        )}
      </Field>
      <Field label="Expires">
        {(ids) => (
          <select {...ids} value={days} onChange={(event) => setDays(event.currentTarget.value)}>
            <option value="">never</option>
            <option value="7">in 7 days</option>
            <option value="90">in 90 days</option>
            <option value="365">in 1 year</option>
          </select>
        )}
      </Field>
      <button type="submit" class="button" aria-label="Create token" disabled={!name.trim()}>
        Create
      </button>
    </form>
  );
}

function isInactive(token: Token): boolean {
  return token.revokedAt !== null || (token.expiresAt !== null && Date.parse(token.expiresAt) < Date.now());
}
