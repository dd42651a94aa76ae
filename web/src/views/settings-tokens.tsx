// The project’s tokens: an ADMIN creates and revokes them here.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import { RevokeToken, Tokens, type TokensResult } from "../generated/api.ts";
import { words } from "../format.ts";
import { runMutation } from "../live/run-mutation.ts";
import { limitWords } from "../live/token-limits.ts";
import { may, viewer } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { confirm } from "../ui/confirm.tsx";
import { Copy } from "../ui/copy.tsx";
import { Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { NewToken } from "./settings-new-token.tsx";

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
                  {limitWords(token.limits).map((each) => (
                    <small key={each} class="limit muted">
                      {each}
                    </small>
                  ))}
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

function isInactive(token: Token): boolean {
  return token.revokedAt !== null || (token.expiresAt !== null && Date.parse(token.expiresAt) < Date.now());
}
