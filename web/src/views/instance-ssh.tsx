// SSH access. The command is loaded with the view; the password only on click, and it is discarded when hidden: the
// page does not contain it before or after.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { SshCommand, SshPassword } from "../generated/api.ts";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";

type Command =
  | { readonly phase: "loading" }
  | { readonly phase: "known"; readonly command: string; readonly isRunning: boolean }
  | { readonly phase: "none" }
  | { readonly phase: "failed"; readonly message: string };

type Password =
  | { readonly phase: "hidden" | "loading" }
  | { readonly phase: "shown"; readonly password: string }
  | { readonly phase: "failed"; readonly message: string };

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
      const access = (await request(SshPassword, { id })).sshAccess;
      // Command and password belong together, so both come from this response.
      setCommand(access ? { phase: "known", command: access.command, isRunning: access.isRunning } : { phase: "none" });
      if (access?.password) setPassword({ phase: "shown", password: access.password });
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
    </>
  );
}
