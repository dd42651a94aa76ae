// An operation’s phases as steps; only the current one turns.
import { brief } from "../format.ts";
import type { Step } from "../live/phases.ts";
import { Shape, type Tone } from "./chip.tsx";
import { Hidden } from "./icons.tsx";
import { Since } from "./since.tsx";

const TONES: Record<Step["state"], Tone> = { done: "good", current: "active", ahead: "off", failed: "bad", skipped: "off" };
const WORDS: Record<Step["state"], string> = { done: "done", current: "now", ahead: "ahead", failed: "ended here", skipped: "not reached" };

export function Steps({ steps }: { steps: readonly Step[] }) {
  return (
    <ol class="steps" aria-label="Steps">
      {steps.map((step) => (
        <li key={step.phase} class={`${TONES[step.state]} ${step.state}`} aria-current={step.state === "current" ? "step" : undefined}>
          <Shape tone={TONES[step.state]} />
          <span>{step.text}</span>
          <Hidden>{WORDS[step.state]}</Hidden>
          <small class="figures">
            {step.began && (step.ended ? brief(Date.parse(step.ended) - Date.parse(step.began)) : <Since at={step.began} />)}
          </small>
        </li>
      ))}
    </ol>
  );
}
