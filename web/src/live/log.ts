// A log as it grows: its last lines, then what is added.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { subscribe } from "../api/subscriptions.ts";
import { FollowLog, type LogKind, ReadLog } from "../generated/api.ts";

export interface Log {
  readonly text: string | null;
  readonly isLive: boolean;
  readonly problem: string | null;
}

// More than anyone reads on a page; the API has the whole.
const MOST_CHARACTERS = 1_000_000;
const TAIL = 5_000;

export function useLog(id: string, which: LogKind): Log {
  const [log, setLog] = useState<Log>({ text: null, isLive: false, problem: null });
  useEffect(() => {
    const abort = new AbortController();
    let end = -1;
    setLog({ text: null, isLive: false, problem: null });
    const stop = subscribe(FollowLog, () => ({ id, which }), {
      next: ({ instanceLog: part }) => {
        // A part that begins elsewhere follows a lost connection or a new log: it stands for itself.
        const isNext = part.begin === end;
        end = part.end;
        setLog((old) => ({ text: append(isNext ? (old.text ?? "") : "", part.text), isLive: true, problem: null }));
      },
      // Nothing is added any more. What there is can still be read, as long as the provider has it.
      onError: () => {
        request(ReadLog, { id, which, tail: TAIL }, abort.signal)
          .then(({ instanceLog }) => setLog((old) => ({ text: instanceLog?.text ?? old.text ?? "", isLive: false, problem: null })))
          .catch((error: unknown) => {
            if (!abort.signal.aborted) setLog((old) => ({ ...old, isLive: false, problem: messageOf(error) }));
          });
      },
    });
    return () => {
      abort.abort();
      stop();
    };
  }, [id, which]);
  return log;
}

function append(text: string, more: string): string {
  const whole = text + more;
  if (whole.length <= MOST_CHARACTERS) return whole;
  return whole.slice(whole.indexOf("\n", whole.length - MOST_CHARACTERS) + 1);
}

// The lines that contain the searched text, or all; without regard to case.
export function linesWith(text: string, searched: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const lower = searched.toLowerCase();
  return lower ? lines.filter((line) => line.toLowerCase().includes(lower)) : lines;
}
