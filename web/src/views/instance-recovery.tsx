// How an instance comes back after a reclaim or a loss, and the recovery in progress.
import { count, moment, span } from "../format.ts";
import type { RecoveryState, StartStep } from "../generated/api.ts";
import type { Detail } from "../live/instance.ts";
import { may } from "../live/viewer.ts";
import { Panel } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";

const OVER: ReadonlySet<Detail["status"]> = new Set(["DELETING", "DELETED"]);
const STEPS: Record<StartStep, string> = { SAME: "start its machine", MIGRATE: "migrate it", RELOCATE: "make another machine", OTHER: "another step" };

export function RecoveryPanel({ instance }: { instance: Detail }) {
  const { recovery } = instance;
  if (OVER.has(instance.status)) return null;
  return (
    <Panel
      title="Recovery"
      aside={
        recovery?.incident && (
          <strong class="figures">
            recovering for <Since at={recovery.incident.beganAt} />
          </strong>
        )
      }
    >
      {recovery ? <Facts recovery={recovery} /> : <p class="body muted">None: after a spot reclaim or a loss it stays stopped.</p>}
      {may("OPERATOR") && (
        <p class="body foot">
          <a class="button small" href={`#/instances/${instance.id}/edit`}>
            {recovery ? "Change recovery" : "Set up recovery"}
          </a>
        </p>
      )}
    </Panel>
  );
}

function Facts({ recovery }: { recovery: RecoveryState }) {
  const { on, steps, allowDataLoss, regions, billing, giveUpAfter, replaceBeforeReclaim, drain, incident } = recovery;
  const facts: [string, string][] = [];
  if (incident) {
    facts.push(["Now", `${incident.trigger === "LOSS" ? "its machine was lost" : "reclaimed"} ${moment(incident.beganAt)}; ${count(incident.tries, "attempt")}`]);
    facts.push(["Gives up", moment(incident.givesUpAt)]);
  }
  facts.push(["After", on.map((each) => (each === "LOSS" ? "a loss" : "a spot reclaim")).join(" or ")]);
  facts.push(["Steps", steps.map((each) => STEPS[each]).join(", ")]);
  facts.push(["Own disks", allowDataLoss ? "their data may be lost" : "kept"]);
  if (replaceBeforeReclaim) facts.push(["Before a reclaim", `another machine takes over; the old one stays for ${span(drain * 1000)}`]);
  if (regions) facts.push(["New machine in", regions.join(", ")]);
  if (billing === "ON_DEMAND_AFTER") facts.push(["Billing", "on-demand, once no spot is left"]);
  if (!incident) facts.push(["Gives up after", span(giveUpAfter * 1000)]);
  return (
    <dl class="facts body">
      {facts.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}
