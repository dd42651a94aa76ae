// Views whose code is loaded when they are first shown.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../api/request.ts";
import { Problem } from "./parts.tsx";

export function lazy<Props extends object>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  let Loaded: ComponentType<Props> | null = null;
  return function Lazy(props: Props) {
    const [, setLoaded] = useState(false);
    const [problem, setProblem] = useState<string | null>(null);
    useEffect(() => {
      if (Loaded) return;
      load().then(
        (component) => {
          Loaded = component;
          setLoaded(true);
        },
        (error: unknown) => setProblem(messageOf(error)),
      );
    }, []);
    if (Loaded) return <Loaded {...props} />;
    return (
      <div class="view">
        {/* After an upgrade of the server the file has another name, which only a new page knows. */}
        {problem ? <Problem retry={() => location.reload()}>{problem}</Problem> : <p class="muted">Loading …</p>}
      </div>
    );
  };
}
