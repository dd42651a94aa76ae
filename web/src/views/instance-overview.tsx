// The overview tab: timeline, endpoints and SSH, health checks, details.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { CheckHealth } from "../generated/api.ts";
import { brief, clock, count, money, words } from "../format.ts";
import type { Detail, Entry } from "../live/instance.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may, viewer } from "../live/viewer.ts";
import { Chip, HealthMark, Shape, toneOf } from "../ui/chip.tsx";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";
import { Panel } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { HealthHistory } from "./instance-health.tsx";
import { LifetimePanel } from "./instance-lifetime.tsx";
import { MachinesPanel } from "./instance-machines.tsx";
import { RecoveryPanel } from "./instance-recovery.tsx";
import { Ssh } from "./instance-ssh.tsx";

export function Overview({ instance, entries, refresh }: { instance: Detail; entries: readonly Entry[]; refresh: () => void }) {
  return (
    <div class="columns">
      <div class="stack">
        <MachinesPanel instance={instance} />
        <Timeline instance={instance} entries={entries} />
      </div>
      <div class="stack">
        <Connect instance={instance} />
        <LifetimePanel instance={instance} refresh={refresh} />
        <RecoveryPanel instance={instance} />
        <Health instance={instance} entries={entries} refresh={refresh} />
        <Details instance={instance} />
      </div>
    </div>
  );
}

type State = NonNullable<Entry["instance"]>;

interface Step {
  readonly key: string;
  readonly at: string;
  readonly isMajor: boolean;
  readonly entry: Entry;
}

function Timeline({ instance, entries }: { instance: Detail; entries: readonly Entry[] }) {
  const steps: Step[] = entries.map((entry) => ({ key: entry.id, at: entry.occurredAt, isMajor: entry.status !== null, entry }));
  const major = steps.filter((step) => step.isMajor);
  const until = new Map(major.map((step, index) => [step.key, major[index + 1]?.at ?? null]));
  return (
    <Panel title="Timeline" aside={<span class="muted figures">{major.length} status changes</span>}>
      <ol class="timeline">
        {steps.toReversed().map((step, index) => (
          <li key={step.key} class={step.isMajor ? `${toneOf(step.entry.status ?? "CREATING")} ${until.get(step.key) ? "past" : ""}` : "minor"}>
            <span class="dot">{step.isMajor && <Shape tone={until.get(step.key) ? "good" : toneOf(step.entry.status ?? "CREATING")} />}</span>
            <div class="what">{describe(step.entry, instance, stateBefore(entries, entries.length - 1 - index))}</div>
            <div class="when">
              <time dateTime={step.at}>{clock(step.at)}</time>
              {step.isMajor && step.entry.status !== "DELETED" && (
                <small>
                  <Duration from={step.at} to={until.get(step.key) ?? null} />
                </small>
              )}
            </div>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Duration({ from, to }: { from: string; to: string | null }) {
  if (to === null) return <Since at={from} />;
  return <>{brief(Date.parse(to) - Date.parse(from))}</>;
}

// The instance’s state right before an entry.
function stateBefore(entries: readonly Entry[], index: number): State | null {
  for (let at = index - 1; at >= 0; at--) {
    const known = entries[at]?.instance;
    if (known) return known;
  }
  return null;
}

// Without its next action, which is another one after each step.
function limitsOf({ lifetime }: State) {
  return lifetime && { ...lifetime, next: null };
}

function changed(now: State | null, was: State | null): string {
  if (!now || !was) return "Instance changed";
  const parts = [
    now.name !== was.name && `renamed from ${was.name}`,
    now.novitaStatus !== was.novitaStatus && `provider status: ${now.novitaStatus ?? "none"}`,
    now.endpoints.length > was.endpoints.length && "endpoints assigned",
    now.novitaId !== was.novitaId && now.novitaId !== null && was.novitaId !== null && "another machine",
    now.region !== was.region && `region: ${now.region ?? "none"}`,
    now.runningPricePerHour?.amountMicros !== was.runningPricePerHour?.amountMicros &&
      `price: ${money(now.runningPricePerHour)} per hour`,
    JSON.stringify(limitsOf(now)) !== JSON.stringify(limitsOf(was)) && "lifetime changed",
    JSON.stringify({ ...now.recovery, incident: null }) !== JSON.stringify({ ...was.recovery, incident: null }) && "recovery changed",
    JSON.stringify(now.labels) !== JSON.stringify(was.labels) && "labels changed",
    JSON.stringify(now.ports) !== JSON.stringify(was.ports) && "ports changed",
    now.rootfsSizeGb !== was.rootfsSizeGb && `root disk: ${now.rootfsSizeGb} GB`,
    now.spotReclaimAt !== was.spotReclaimAt && now.novitaId === was.novitaId && (now.spotReclaimAt ? `spot reclaim at ${clock(now.spotReclaimAt)}` : "spot reclaim withdrawn"),
  ].filter((part) => part !== false);
  const text = parts.join(", ");
  return text ? text.charAt(0).toUpperCase() + text.slice(1) : "Instance changed";
}

function describe(entry: Entry, instance: Detail, was: State | null) {
  if (entry.status) {
    const code = entry.instance?.statusReason;
    const reason = entry.instance?.failure?.message ?? (code && /^[A-Z_]+$/.test(code) ? words(code) : code);
    const where = entry.status === "STARTING" && entry.instance?.region ? `in ${entry.instance.region}` : null;
    return (
      <>
        <strong>{words(entry.status)}</strong>
        {(reason ?? where) && <p>{reason ?? where}</p>}
      </>
    );
  }
  if (entry.health) {
    const slowest = Math.max(...entry.health.endpoints.map((each) => each.latency * 1000));
    const error = entry.health.endpoints.find((each) => each.error)?.error;
    return (
      <>
        Health check: {words(entry.health.status).toLowerCase()}, {Math.round(slowest)} ms{error && `. ${error.message}`}
      </>
    );
  }
  if (entry.operation) {
    const { kind, status, error, phase } = entry.operation;
    if (entry.type === "operation.finished") {
      return (
        <>
          {words(kind)} {words(status).toLowerCase()}
          {error && `: ${error.message}`}
        </>
      );
    }
    return (
      <>
        {words(kind)}: {phase === "WAITING" ? "accepted" : words(phase).toLowerCase()}
        {entry.causedBy && phase === "WAITING" && `, requested by ${entry.causedBy.name}`}
      </>
    );
  }
  if (entry.type === "attempt.finished") {
    const attempts = instance.operations.flatMap((operation) => operation.attempts).filter((each) => each.finishedAt);
    const at = Date.parse(entry.occurredAt);
    const attempt = attempts.toSorted((one, other) => distance(one.finishedAt, at) - distance(other.finishedAt, at))[0];
    if (attempt) {
      return (
        <>
          {attempt.region} {attempt.billingMode && words(attempt.billingMode).toLowerCase()}: {words(attempt.status).toLowerCase()}
          {attempt.reasonMessage && `. ${attempt.reasonMessage}`}
        </>
      );
    }
    return <>Attempt finished</>;
  }
  if (entry.type === "instance.changed") return <>{changed(entry.instance, was)}</>;
  return <>{words(entry.type.replaceAll(".", " "))}</>;
}

function distance(finishedAt: string | null, at: number): number {
  return finishedAt ? Math.abs(Date.parse(finishedAt) - at) : Number.POSITIVE_INFINITY;
}

const NO_ENDPOINTS: Partial<Record<Detail["status"], string>> = {
  EXITED: "Not available while the instance is stopped.",
  FAILED: "No endpoints.",
  DELETING: "Not available: the instance is being deleted.",
  DELETED: "The instance is deleted.",
};

export const UP: ReadonlySet<Detail["status"]> = new Set(["RUNNING", "HEALTH_CHECKING", "READY"]);

function Connect({ instance }: { instance: Detail }) {
  const canLogIn = UP.has(instance.status) && viewer.value !== null && may("OPERATOR");
  return (
    <Panel title="Connect">
      {instance.endpoints.length === 0 && !canLogIn ? (
        <p class="body muted">
          {NO_ENDPOINTS[instance.status] ?? "Endpoints appear here when the machine is running."}
        </p>
      ) : (
        <ul class="reach">
          {instance.endpoints.map((endpoint) => (
            <li key={endpoint.port}>
              <span class="tag">{endpoint.port}</span>
              <span class="mono" title={endpoint.address}>
                {endpoint.address}
              </span>
              {endpoint.type === "http" && (
                <a class="icon-button" href={endpoint.address} target="_blank" rel="noreferrer" aria-label={`Open port ${endpoint.port}`}>
                  <Icon name="open" size={16} />
                </a>
              )}
              <Copy text={endpoint.address} label={`the address of port ${endpoint.port}`} />
            </li>
          ))}
          {canLogIn && <Ssh key={`${instance.novitaId} ${instance.runningAt}`} id={instance.id} />}
        </ul>
      )}
    </Panel>
  );
}

function Health({ instance, entries, refresh }: { instance: Detail; entries: readonly Entry[]; refresh: () => void }) {
  const { health } = instance;
  const [isChecking, setChecking] = useState(false);
  const check = async () => {
    setChecking(true);
    const input = { instanceId: instance.id };
    await runMutation(async () => (await requestWithRetry(CheckHealth, { input })).checkHealth.errors, { rejected: "Health check rejected" });
    setChecking(false);
    // A check with an unchanged result causes no event.
    refresh();
  };
  return (
    <Panel title={instance.status === "EXITED" ? "Health (last run)" : "Health"} aside={health && <HealthMark health={health.status} />}>
      {!health ? (
        <p class="body muted">No health check in this run yet.</p>
      ) : (
        health.endpoints.map((probe) => (
          <div key={probe.port} class="probe">
            <span>
              Port {probe.port} <span class="muted">{probe.type}</span>
            </span>
            <span class="figures">
              {probe.httpStatus !== null && <span class="tag">{probe.httpStatus}</span>} {Math.round(probe.latency * 1000)} ms
            </span>
            <p>
              {probe.error ? `${words(probe.error.kind)}: ${probe.error.message}` : "Healthy"} · {count(probe.attempts, "attempt")}, checked{" "}
              <Since at={probe.checkedAt} /> ago
            </p>
          </div>
        ))
      )}
      <HealthHistory entries={entries} />
      {UP.has(instance.status) && may("OPERATOR") && (
        <p class="body foot">
          <button type="button" class="button small" disabled={isChecking} onClick={check}>
            <Icon name="pulse" size={14} />
            {isChecking ? "Checking …" : "Run health check"}
          </button>
        </p>
      )}
    </Panel>
  );
}

// How its container was started, as far as the request said anything about it.
function StartFacts({ instance }: { instance: Detail }) {
  const tools = instance.tools.map((tool) => `${tool.name === "SSH" ? "SSH" : words(tool.name)} on ${tool.port}`).join(", ");
  const facts: readonly [string, string | null][] = [
    ["Entrypoint", instance.entrypoint],
    ["Command", instance.command],
    ["Tools", tools],
    ["Lowest CUDA", instance.minCudaVersion],
    ["Network", instance.networkId],
  ];
  return (
    <>
      {facts.map(([name, value]) => value && [<dt key={name}>{name}</dt>, <dd key={`${name} value`} class={name === "Tools" ? "" : "mono"}>{value}</dd>])}
    </>
  );
}

function Details({ instance }: { instance: Detail }) {
  const ports = instance.ports.map((port) => `${port.port}/${port.type}`).join(", ");
  return (
    <Panel title="Details">
      <dl class="facts body">
        <dt>Image</dt>
        <dd class="mono">{instance.image}</dd>
        <StartFacts instance={instance} />
        <dt>Root disk</dt>
        <dd>{instance.rootfsSizeGb} GB</dd>
        {instance.volumes.length > 0 && (
          <>
            <dt>Volumes</dt>
            <dd>
              <a href="#/volumes">{instance.volumes.map((volume) => volume.mountPath).join(", ")}</a>
            </dd>
          </>
        )}
        <dt>Ports</dt>
        <dd>{ports || "none"}</dd>
        <dt>Billing</dt>
        <dd>
          {words(instance.billing)}
          {instance.maxHourlyPrice && `, at most ${money(instance.maxHourlyPrice)} per hour`}
        </dd>
        <dt>Regions</dt>
        <dd>{instance.regions.join(", ")}</dd>
        {instance.labels.length > 0 && (
          <>
            <dt>Labels</dt>
            <dd>
              {instance.labels.map((label) => (
                <span key={label.key} class="tag">
                  {label.key}={label.value}
                </span>
              ))}
            </dd>
          </>
        )}
        {instance.env.length > 0 && (
          <>
            <dt>Environment</dt>
            <dd class="mono">{instance.env.map((each) => each.key).join(", ")}</dd>
          </>
        )}
        {instance.webhook && (
          <>
            <dt>Webhook</dt>
            <dd>
              <span class="mono">{instance.webhook.url}</span> {instance.webhook.disabledAt && <Chip tone="bad">disabled (HTTP 410)</Chip>}
            </dd>
          </>
        )}
        <dt>ID</dt>
        <dd class="mono with-copy">
          <span>{instance.id}</span>
          <Copy text={instance.id} label="the ID" />
        </dd>
        {instance.novitaId && (
          <>
            <dt>Novita ID, status</dt>
            <dd class="mono">
              {instance.novitaId}
              {instance.novitaStatus && `, ${instance.novitaStatus}`}
            </dd>
          </>
        )}
        <dt>Age</dt>
        <dd>
          <Since at={instance.createdAt} until={instance.deletedAt} />
        </dd>
      </dl>
    </Panel>
  );
}
