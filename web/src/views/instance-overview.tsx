// How it came to where it is, how to reach it, and what it is made of.
import { useState } from "preact/hooks";
import { insist } from "../api/request.ts";
import { CheckHealth } from "../generated/api.ts";
import { brief, clock, money, words } from "../format.ts";
import type { Detail, Entry } from "../live/story.ts";
import { told } from "../live/told.ts";
import { may, viewer } from "../live/viewer.ts";
import { Chip, HealthMark, Shape, toneOf } from "../ui/chip.tsx";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";
import { Panel } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { Ssh } from "./instance-ssh.tsx";

export function Overview({ instance, entries, refresh }: { instance: Detail; entries: readonly Entry[]; refresh: () => void }) {
  return (
    <div class="columns">
      <div class="stack">
        <Timeline instance={instance} entries={entries} />
      </div>
      <div class="stack">
        <Reach instance={instance} />
        <Probes instance={instance} refresh={refresh} />
        <Facts instance={instance} />
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
  const until = new Map(major.map((step, place) => [step.key, major[place + 1]?.at ?? null]));
  return (
    <Panel title="Timeline" aside={<span class="muted figures">{major.length} transitions</span>}>
      <ol class="timeline">
        {steps.toReversed().map((step, place) => (
          <li key={step.key} class={step.isMajor ? `${toneOf(step.entry.status ?? "CREATING")} ${until.get(step.key) ? "past" : ""}` : "minor"}>
            <span class="dot">{step.isMajor && <Shape tone={toneOf(step.entry.status ?? "CREATING")} />}</span>
            <div class="what">{describe(step.entry, instance, before(entries, entries.length - 1 - place))}</div>
            <div class="when">
              <time dateTime={step.at}>{clock(step.at)}</time>
              {step.isMajor && step.entry.status !== "DELETED" && (
                <small>
                  <Lasted from={step.at} to={until.get(step.key) ?? null} />
                </small>
              )}
            </div>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Lasted({ from, to }: { from: string; to: string | null }) {
  if (to === null) return <Since at={from} />;
  return <>{brief(Date.parse(to) - Date.parse(from))}</>;
}

// How the instance was right before an entry.
function before(entries: readonly Entry[], place: number): State | null {
  for (let at = place - 1; at >= 0; at--) {
    const known = entries[at]?.instance;
    if (known) return known;
  }
  return null;
}

function changed(now: State | null, was: State | null): string {
  if (!now || !was) return "Something about it changed";
  const parts = [
    now.name !== was.name && `renamed from ${was.name}`,
    now.novitaStatus !== was.novitaStatus && `the provider says ${now.novitaStatus ?? "nothing"}`,
    now.endpoints.length > was.endpoints.length && "it has its addresses",
    now.region !== was.region && `placed in ${now.region ?? "no region"}`,
    now.pricePerHour?.amountMicros !== was.pricePerHour?.amountMicros && `costs ${money(now.pricePerHour)} an hour`,
    JSON.stringify(now.labels) !== JSON.stringify(was.labels) && "other labels",
    JSON.stringify(now.ports) !== JSON.stringify(was.ports) && "other ports",
    now.rootfsSizeGb !== was.rootfsSizeGb && `its disk has ${now.rootfsSizeGb} GB`,
    now.spotReclaimAt !== was.spotReclaimAt && (now.spotReclaimAt ? `will be taken back at ${clock(now.spotReclaimAt)}` : "will not be taken back"),
  ].filter((part) => part !== false);
  const said = parts.join(", ");
  return said ? said.charAt(0).toUpperCase() + said.slice(1) : "Something about it changed";
}

function describe(entry: Entry, instance: Detail, was: State | null) {
  if (entry.status) {
    const reason = entry.instance?.failure?.message ?? entry.instance?.statusReason;
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
    const wrong = entry.health.endpoints.find((each) => each.error)?.error;
    return (
      <>
        Probed: {words(entry.health.status).toLowerCase()} in {Math.round(slowest)} ms{wrong && `. ${wrong.message}`}
      </>
    );
  }
  if (entry.operation) {
    const { kind, status, error, phase } = entry.operation;
    if (entry.type === "operation.finished") {
      return (
        <>
          {words(kind)} {status === "SUCCEEDED" ? "done" : words(status).toLowerCase()}
          {error && `: ${error.message}`}
        </>
      );
    }
    return (
      <>
        {words(kind)}: {phase === "WAITING" ? "accepted" : words(phase).toLowerCase()}
        {entry.causedBy && phase === "WAITING" && `, asked for by ${entry.causedBy.name}`}
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
    return <>An attempt ended</>;
  }
  if (entry.type === "instance.changed") return <>{changed(entry.instance, was)}</>;
  return <>{words(entry.type.replaceAll(".", " "))}</>;
}

function distance(finishedAt: string | null, at: number): number {
  return finishedAt ? Math.abs(Date.parse(finishedAt) - at) : Number.POSITIVE_INFINITY;
}

const NOWHERE: Partial<Record<Detail["status"], string>> = {
  EXITED: "Nowhere while it is stopped.",
  FAILED: "It has no address.",
  DELETING: "Nowhere: it is being removed.",
  DELETED: "Nowhere: it is gone.",
};

const UP: ReadonlySet<Detail["status"]> = new Set(["RUNNING", "HEALTH_CHECKING", "READY"]);

function Reach({ instance }: { instance: Detail }) {
  const canLogIn = UP.has(instance.status) && viewer.value !== null && may("OPERATOR");
  return (
    <Panel title="How to reach it">
      {instance.endpoints.length === 0 && !canLogIn ? (
        <p class="body muted">
          {NOWHERE[instance.status] ?? "Its addresses appear here as soon as the machine is up."}
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
          {canLogIn && <Ssh key={instance.runningAt} id={instance.id} />}
        </ul>
      )}
    </Panel>
  );
}

function Probes({ instance, refresh }: { instance: Detail; refresh: () => void }) {
  const { health } = instance;
  const [isProbing, setProbing] = useState(false);
  const probe = async () => {
    setProbing(true);
    const input = { instanceId: instance.id };
    await told(async () => (await insist(CheckHealth, { input })).checkHealth.errors, { refused: "Not probed" });
    setProbing(false);
    // A check that finds what the last one found is no event.
    refresh();
  };
  return (
    <Panel title={instance.status === "EXITED" ? "Health in the last run" : "Health"} aside={health && <HealthMark health={health.status} />}>
      {!health ? (
        <p class="body muted">Nothing was probed in this run.</p>
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
              {probe.error ? `${words(probe.error.kind)}: ${probe.error.message}` : "Answers as it should"} · probed {probe.attempts} ×,{" "}
              <Since at={probe.checkedAt} /> ago
            </p>
          </div>
        ))
      )}
      {UP.has(instance.status) && may("OPERATOR") && (
        <p class="body foot">
          <button type="button" class="button small" disabled={isProbing} onClick={probe}>
            <Icon name="pulse" size={14} />
            {isProbing ? "Probing …" : "Probe now"}
          </button>
        </p>
      )}
    </Panel>
  );
}

function Facts({ instance }: { instance: Detail }) {
  const ports = instance.ports.map((port) => `${port.port}/${port.type}`).join(", ");
  return (
    <Panel title="What it is">
      <dl class="facts body">
        <dt>Image</dt>
        <dd class="mono">{instance.image}</dd>
        {instance.command && (
          <>
            <dt>Command</dt>
            <dd class="mono">{instance.command}</dd>
          </>
        )}
        <dt>Root disk</dt>
        <dd>{instance.rootfsSizeGb} GB</dd>
        <dt>Ports</dt>
        <dd>{ports || "none"}</dd>
        <dt>Paid</dt>
        <dd>
          {words(instance.billing)}
          {instance.maxHourlyPrice && `, at most ${money(instance.maxHourlyPrice)} an hour`}
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
              <span class="mono">{instance.webhook.url}</span> {instance.webhook.disabledAt && <Chip tone="bad">switched off by 410</Chip>}
            </dd>
          </>
        )}
        <dt>Id</dt>
        <dd class="mono with-copy">
          <span>{instance.id}</span>
          <Copy text={instance.id} label="the id" />
        </dd>
        {instance.novitaId && (
          <>
            <dt>At the provider</dt>
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
