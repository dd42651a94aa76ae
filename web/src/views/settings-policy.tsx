// The project’s rules for lifetimes.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import { LifetimePolicyOfProject, type LifetimePolicyOfProjectResult, SetLifetimePolicy } from "../generated/api.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may } from "../live/viewer.ts";
import { Field, Panel, Problem } from "../ui/parts.tsx";

type Policy = LifetimePolicyOfProjectResult["viewer"]["project"]["lifetimePolicy"];

export function PolicyPanel() {
  const [policy, setPolicy] = useState<Policy | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [atMost, setAtMost] = useState("");
  const [byDefault, setByDefault] = useState("");
  const [isRequired, setRequired] = useState(false);
  const load = () => {
    request(LifetimePolicyOfProject, {})
      .then(({ viewer }) => {
        const loaded = viewer.project.lifetimePolicy;
        setPolicy(loaded);
        setRequired(loaded.required);
        setAtMost(hours(loaded.maxDurationAtMost));
        setByDefault(hours(loaded.defaultMaxDuration));
      })
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  useEffect(load, []);
  const save = async (event: Event) => {
    event.preventDefault();
    const input = {
      required: isRequired,
      maxDurationAtMost: seconds(atMost),
      defaultMaxDuration: seconds(byDefault),
      defaultIdle: policy?.defaultIdle ?? null,
    };
    await runMutation(async () => (await requestWithRetry(SetLifetimePolicy, { input })).setLifetimePolicy.errors, {
      succeeded: "Lifetime policy saved",
      rejected: "Lifetime policy not saved",
    });
    load();
  };
  const isReadOnly = !may("ADMIN") || policy === null;
  return (
    <Panel title="Lifetime policy">
      {problem && <Problem>{problem}</Problem>}
      <form class="body" onSubmit={save}>
        <p class="muted">Rules for the instances of this project. Lifetimes that were accepted before stay as they are.</p>
        <label class="check">
          <input type="checkbox" checked={isRequired} disabled={isReadOnly} onChange={(event) => setRequired(event.currentTarget.checked)} />
          Every instance needs a longest run or a deadline
        </label>
        <div class="pair">
          <Field label="Longest run allowed, hours" hint="empty: no limit">
            {(ids) => (
              <input {...ids} value={atMost} disabled={isReadOnly} inputMode="decimal" onInput={(event) => setAtMost(event.currentTarget.value)} />
            )}
          </Field>
          <Field label="Default longest run, hours" hint="if a request names none">
            {(ids) => (
              <input {...ids} value={byDefault} disabled={isReadOnly} inputMode="decimal" onInput={(event) => setByDefault(event.currentTarget.value)} />
            )}
          </Field>
        </div>
        <button type="submit" class="button small" disabled={isReadOnly}>
          Save policy
        </button>
      </form>
    </Panel>
  );
}

function hours(seconds: number | null): string {
  return seconds === null ? "" : String(seconds / 3600);
}

function seconds(hours: string): number | null {
  const number = Number.parseFloat(hours.replace(",", "."));
  return number > 0 ? Math.round(number * 3600) : null;
}
