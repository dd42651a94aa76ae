// SSH, Jupyter and the web terminal. The SSH command is loaded with the view; passwords and addresses, which may carry
// a token, only on click, and they are discarded when hidden: the page does not contain them before or after.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { Access, type AccessResult, SshCommand } from "../generated/api.ts";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";

type Command =
  | { readonly phase: "loading" }
  | { readonly phase: "known"; readonly command: string; readonly isRunning: boolean }
  | { readonly phase: "none" }
  | { readonly phase: "failed"; readonly message: string };

type Password =
  | { readonly phase: "hidden" | "loading" }
  | { readonly phase: "shown"; readonly password: string; readonly others: Others }
  | { readonly phase: "failed"; readonly message: string };

type Others = Pick<NonNullable<AccessResult["instanceAccess"]>, "jupyter" | "webTerminal">;

// For one run of the machine: the next one has another address and password, and mounts a new component.
export function Ssh({ id }: { id: string }) {
  const [command, setCommand] = useState<Command>({ phase: "loading" });
  const [password, setPassword] = useState<Password>({ phase: "hidden" });
  const [reloads, setReloads] = useState(0);

  useEffect(() => {
    const abort = new AbortController();
    setCommand({ phase: "loading" });
    request(SshCommand, { id }, abort.signal)
      .then(({ sshAccess }) => setCommand(sshAccess ? { phase: "known", ...sshAccess } : { phase: "none" }))
      .catch((error: unknown) => {
        if (!abort.signal.aborted) setCommand({ phase: "failed", message: messageOf(error) });
      });
    return () => abort.abort();
  }, [id, reloads]);

  const show = async () => {
    setPassword({ phase: "loading" });
    try {
      const all = (await request(Access, { id })).instanceAccess;
      const access = all?.ssh;
      // Command and password belong together, so both come from this response.
      setCommand(access ? { phase: "known", command: access.command, isRunning: access.isRunning } : { phase: "none" });
      if (all && access?.password) setPassword({ phase: "shown", password: access.password, others: all });
      else setPassword({ phase: "failed", message: access ? "The provider returned no password." : "The instance is no longer running." });
    } catch (error) {
      setPassword({ phase: "failed", message: messageOf(error) });
    }
  };

  if (command.phase !== "known") {
    return (
      <li class="ssh">
        <span class="tag">SSH</span>
        <span class="muted note-text" role={command.phase === "failed" ? "alert" : undefined}>
          {command.phase === "loading" && "Loading …"}
          {command.phase === "none" && "SSH access is not available yet."}
          {command.phase === "failed" && command.message}
        </span>
        {command.phase !== "loading" && (
          <button type="button" class="button small" aria-label="Retry loading SSH access" onClick={() => setReloads(reloads + 1)}>
            Retry
          </button>
        )}
      </li>
    );
  }
  return (
    <>
      <li class="ssh">
        <span class="tag">SSH</span>
        <span class="mono" title={command.command}>
          {command.command}
        </span>
        <Copy text={command.command} label="the SSH command" />
      </li>
      <li class="ssh">
        {password.phase === "shown" ? (
          <span class="mono password">{password.password}</span>
        ) : (
          <span class="muted note-text" role={password.phase === "failed" ? "alert" : undefined}>
            {password.phase === "failed" ? password.message : command.isRunning ? "Password hidden" : "The SSH server is not running yet."}
          </span>
        )}
        <button
          type="button"
          class="button small"
          disabled={password.phase === "loading"}
          onClick={password.phase === "shown" ? () => setPassword({ phase: "hidden" }) : show}
        >
          <Icon name="eye" size={14} />
          {password.phase === "shown" ? "Hide password" : password.phase === "loading" ? "Loading …" : "Show password"}
        </button>
        {password.phase === "shown" && <Copy text={password.password} label="the SSH password" />}
      </li>
      {password.phase === "shown" && <InBrowser others={password.others} />}
    </>
  );
}

// What opens in a browser tab. The web terminal may ask for a user and a password of its own.
function InBrowser({ others: { jupyter, webTerminal } }: { others: Others }) {
  const rows = [
    ...(jupyter ? [{ ...jupyter, name: "Jupyter", user: null, password: null }] : []),
    ...(webTerminal ? [{ ...webTerminal, name: "Terminal", user: webTerminal.username }] : []),
  ];
  return (
    <>
      {rows.map(({ name, address, isRunning, user, password }) => (
        <li class="ssh" key={name}>
          <span class="tag">{name}</span>
          <a class="mono" href={address} target="_blank" rel="noreferrer">
            {isRunning ? "Open" : "Open (not running yet)"}
          </a>
          <span class="muted note-text">{user && `user ${user}`}</span>
          {password && <Copy text={password} label={`the password of ${name}`} />}
        </li>
      ))}
    </>
  );
}
