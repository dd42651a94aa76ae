// How to log in. The command is asked for with the view, the password only when somebody wants to see it, and it is
// forgotten as soon as it is hidden: it is nowhere in the page before or after.
import { useEffect, useState } from "preact/hooks";
import { ask, wordsOf } from "../api/request.ts";
import { SshCommand, SshPassword } from "../generated/api.ts";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";

type Command =
  | { readonly phase: "asking" }
  | { readonly phase: "known"; readonly command: string; readonly isRunning: boolean }
  | { readonly phase: "none" }
  | { readonly phase: "failed"; readonly why: string };

type Password =
  | { readonly phase: "hidden" | "asking" }
  | { readonly phase: "shown"; readonly password: string }
  | { readonly phase: "failed"; readonly why: string };

// For one run of the machine: the next has another address and password, so it gets another of these.
export function Ssh({ id }: { id: string }) {
  const [command, setCommand] = useState<Command>({ phase: "asking" });
  const [password, setPassword] = useState<Password>({ phase: "hidden" });
  const [round, setRound] = useState(0);

  useEffect(() => {
    const leaving = new AbortController();
    setCommand({ phase: "asking" });
    ask(SshCommand, { id }, leaving.signal)
      .then(({ sshAccess }) => setCommand(sshAccess ? { phase: "known", ...sshAccess } : { phase: "none" }))
      .catch((error: unknown) => {
        if (!leaving.signal.aborted) setCommand({ phase: "failed", why: wordsOf(error) });
      });
    return () => leaving.abort();
  }, [id, round]);

  const show = async () => {
    setPassword({ phase: "asking" });
    try {
      const access = (await ask(SshPassword, { id })).sshAccess;
      // The two belong together, so the command is taken from the same answer.
      setCommand(access ? { phase: "known", command: access.command, isRunning: access.isRunning } : { phase: "none" });
      if (access?.password) setPassword({ phase: "shown", password: access.password });
      else setPassword({ phase: "failed", why: access ? "The provider tells no password for it." : "It does not run any more." });
    } catch (error) {
      setPassword({ phase: "failed", why: wordsOf(error) });
    }
  };

  if (command.phase !== "known") {
    return (
      <li class="ssh">
        <span class="tag">SSH</span>
        <span class="muted said" role={command.phase === "failed" ? "alert" : undefined}>
          {command.phase === "asking" && "Asking the provider …"}
          {command.phase === "none" && "The provider names no way in yet."}
          {command.phase === "failed" && command.why}
        </span>
        {command.phase !== "asking" && (
          <button type="button" class="button small" aria-label="Ask again how to log in" onClick={() => setRound(round + 1)}>
            Ask again
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
          <span class="muted said" role={password.phase === "failed" ? "alert" : undefined}>
            {password.phase === "failed" ? password.why : command.isRunning ? "Its password is hidden." : "Its SSH server is not up yet."}
          </span>
        )}
        <button
          type="button"
          class="button small"
          disabled={password.phase === "asking"}
          onClick={password.phase === "shown" ? () => setPassword({ phase: "hidden" }) : show}
        >
          <Icon name="eye" size={14} />
          {password.phase === "shown" ? "Hide password" : password.phase === "asking" ? "Asking …" : "Show password"}
        </button>
        {password.phase === "shown" && <Copy text={password.password} label="the SSH password" />}
      </li>
    </>
  );
}
