// A query that is read when a component is shown, and again on request.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import type { Document } from "../generated/api.ts";

export interface Loaded<Result> {
  readonly data: Result | null;
  readonly problem: string | null;
  readonly reload: () => void;
}

export function useLoaded<Result, Variables>(document: Document<Result, Variables>, variables: Variables): Loaded<Result> {
  const [data, setData] = useState<Result | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [revision, setRevision] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    request(document, variables, abort.signal)
      .then((loaded) => {
        setData(loaded);
        setProblem(null);
      })
      .catch((error: unknown) => !abort.signal.aborted && setProblem(messageOf(error)));
    return () => abort.abort();
  }, [document, JSON.stringify(variables), revision]);
  return { data, problem, reload: () => setRevision((old) => old + 1) };
}

const RELOAD_INTERVAL = 5_000;

// For what ends without an event.
export function useReloadWhile(isActive: boolean | undefined, reload: () => void): void {
  useEffect(() => {
    if (!isActive) return;
    const timer = setInterval(reload, RELOAD_INTERVAL);
    return () => clearInterval(timer);
  }, [isActive]);
}
