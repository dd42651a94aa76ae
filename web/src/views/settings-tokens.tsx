// Who may come in: tokens of the project, made and revoked here by an ADMIN.
import { useEffect, useState } from "preact/hooks";
import { ask, insist, wordsOf } from "../api/request.ts";
import { CreateToken, RevokeToken, type Role, Tokens, type TokensResult } from "../generated/api.ts";
import { words } from "../format.ts";
import { told } from "../live/told.ts";
import { may, viewer } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { confirmed } from "../ui/confirm.tsx";
import { Copy } from "../ui/copy.tsx";
import { Field, Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";

type Token = TokensResult["tokens"]["nodes"][number];

export function TokensPanel() {
  const [tokens, setTokens] = useState<readonly Token[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [made, setMade] = useState<string | null>(null);
  const isAdmin = viewer.value !== null && may("ADMIN");
  const load = () => {
    if (!isAdmin) return;
    ask(Tokens, {})
      .then((found) => setTokens(found.tokens.nodes))
      .catch((error: unknown) => setProblem(wordsOf(error)));
  };
  useEffect(load, [isAdmin]);

  const revoke = async (token: Token) => {
    const isMine = token.id === viewer.value?.token.id;
    const yes = await confirmed({
      title: `Revoke ${token.name}?`,
      body: `Whoever uses it is cut off within seconds. What it has asked for goes on.${isMine ? " It is the one you use now." : ""}`,
      action: "Revoke",
      isDangerous: true,
    });
    if (!yes) return;
    await told(async () => (await insist(RevokeToken, { input: { id: token.id } })).revokeToken.errors, { refused: "Not revoked" });
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
            <th scope="col">Last use</th>
            <th scope="col">
              <span class="hidden">Do</span>
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
              <td data-label="Last use">
                {token.lastUsedAt ? (
                  <span>
                    <Since at={token.lastUsedAt} /> ago
                  </span>
                ) : (
                  "never"
                )}
              </td>
              <td class="right">
                {isOver(token) ? (
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
        {made && (
          <div class="secret" role="status">
            <span>
              <strong>Shown once.</strong> <span class="mono">{made}</span>
            </span>
            <Copy text={made} label="the token" />
          </div>
        )}
        <NewToken
          done={(secret) => {
            setMade(secret);
            load();
          }}
        />
      </div>
    </Panel>
  );
}

function NewToken({ done }: { done: (secret: string) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("OPERATOR");
  const [days, setDays] = useState("");
  const [wrong, setWrong] = useState<string | undefined>();
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      const expiresAt = days ? new Date(Date.now() + Number(days) * 86_400_000).toISOString() : null;
      const payload = (await ask(CreateToken, { input: { name: name.trim(), role, expiresAt } })).createToken;
      setWrong(payload.errors[0]?.message);
      if (!payload.secret) return;
      setName("");
      done(payload.secret);
    } catch (error) {
      setWrong(wordsOf(error));
    }
  };
  return (
    <form class="inline-form" onSubmit={submit}>
      <Field label="New token for" error={wrong} hint="what it is for">
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
      <Field label="Good for">
        {(ids) => (
          <select {...ids} value={days} onChange={(event) => setDays(event.currentTarget.value)}>
            <option value="">ever</option>
            <option value="7">a week</option>
            <option value="90">90 days</option>
            <option value="365">a year</option>
          </select>
        )}
      </Field>
      <button type="submit" class="button" disabled={!name.trim()}>
        Make it
      </button>
    </form>
  );
}

function isOver(token: Token): boolean {
  return token.revokedAt !== null || (token.expiresAt !== null && Date.parse(token.expiresAt) < Date.now());
}
