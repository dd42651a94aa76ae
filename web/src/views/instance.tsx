// One instance: status, actions, timeline, endpoints, operations, webhook deliveries and events.
import { useEffect, useState } from "preact/hooks";
import { cancel, perform, retry, type Verb } from "../actions.ts";
import { type Detail, type Entry, followInstance, type InstanceFeed } from "../live/instance.ts";
import { may } from "../live/viewer.ts";
import { explain, money, perMonth, words } from "../format.ts";
import { StatusChip } from "../ui/chip.tsx";
import { Icon, type IconName } from "../ui/icons.tsx";
import { Empty, Problem, Tabs } from "../ui/parts.tsx";
import { Since, Until } from "../ui/since.tsx";
import { Deliveries } from "./instance-deliveries.tsx";
import { Operations } from "./instance-operations.tsx";
import { Overview } from "./instance-overview.tsx";

type Tab = "overview" | "operations" | "webhooks" | "events";

export function InstanceView({ id }: { id: string }) {
  const [feed, setFeed] = useState<InstanceFeed>({ phase: "loading" });
  const [tab, setTab] = useState<Tab>("overview");
  useEffect(() => followInstance(id, setFeed), [id]);

  return (
    <div class="view">
      <a class="crumb" href="#/">
        <Icon name="back" size={14} />
        Fleet
      </a>
      {feed.phase === "loading" && <p class="muted">Loading …</p>}
      {feed.phase === "missing" && (
        <Empty icon="fleet" title="Instance not found">
          <p>It does not exist, or belongs to another project.</p>
        </Empty>
      )}
      {feed.phase === "error" && <Problem>{feed.message}</Problem>}
      {feed.phase === "loaded" && (
        <>
          <Head instance={feed.instance} />
          <Failure instance={feed.instance} />
          <Progress instance={feed.instance} />
          <Tabs<Tab>
            label="Instance details"
            value={tab}
            onChange={setTab}
            tabs={[
              { value: "overview", text: "Overview" },
              { value: "operations", text: "Operations", count: feed.instance.operations.length },
              { value: "webhooks", text: "Webhooks" },
              { value: "events", text: "Raw events", count: feed.entries.length },
            ]}
          >
            {tab === "overview" && <Overview instance={feed.instance} entries={feed.entries} refresh={feed.refresh} />}
            {tab === "operations" && <Operations instance={feed.instance} />}
            {tab === "webhooks" && <Deliveries instance={feed.instance} lastEventId={feed.entries.at(-1)?.id} />}
            {tab === "events" && <RawEvents entries={feed.entries} />}
          </Tabs>
        </>
      )}
    </div>
  );
}

function Head({ instance }: { instance: Detail }) {
  return (
    <header class="instance-head">
      <div>
        <h1>
          {instance.name}
          <StatusChip status={instance.status} />
          {instance.isDegraded && <span class="tag">degraded</span>}
          <span class="muted since">
            <Since at={instance.statusSince} />
          </span>
        </h1>
        <div class="sub">
          <span>
            {instance.productName}
            {instance.gpuCount > 0 && ` × ${instance.gpuCount}`}
          </span>
          <span>{instance.region ?? `no region yet, ${instance.regions[0] ?? "any"} is tried first`}</span>
          {instance.pricePerHour && (
            <span class="figures">
              {money(instance.pricePerHour)} per hour, ≈ {perMonth(instance.pricePerHour)} per month
              {instance.billingMode === "SPOT" && <span class="tag">spot</span>}
            </span>
          )}
          {instance.spotReclaimAt && <strong>spot reclaim announced</strong>}
          {instance.stale && <span>last known status</span>}
        </div>
      </div>
      <Actions instance={instance} />
    </header>
  );
}

const BUTTONS: readonly { verb: Verb; text: string; icon: IconName }[] = [
  { verb: "START", text: "Start", icon: "start" },
  { verb: "STOP", text: "Stop", icon: "stop" },
  { verb: "RESTART", text: "Restart", icon: "restart" },
  { verb: "MIGRATE", text: "Migrate", icon: "migrate" },
  { verb: "DELETE", text: "Delete", icon: "trash" },
];

function Actions({ instance }: { instance: Detail }) {
  // While an operation is open the server accepts only a delete.
  const isBusy = openOperation(instance) !== undefined;
  const shown = may("OPERATOR") ? BUTTONS.filter(({ verb }) => instance.actions.includes(verb)) : [];
  return (
    <div class="actions">
      {shown.map(({ verb, text, icon }) => (
        <button
          key={verb}
          type="button"
          class={`button ${verb === "DELETE" ? "danger" : ""}`}
          disabled={isBusy && verb !== "DELETE"}
          onClick={() => perform(verb, instance)}
        >
          <Icon name={icon} size={14} />
          {text}
        </button>
      ))}
    </div>
  );
}

function Failure({ instance }: { instance: Detail }) {
  const { failure } = instance;
  if (failure) {
    const next = BUTTONS.filter(({ verb }) => instance.actions.includes(verb)).map(({ text }) => text.toLowerCase()).join(", ");
    return (
      <div class="banner bad" role="alert">
        <Icon name="warn" />
        <div>
          <strong>Instance failed.</strong> {explain(failure)} <code>{failure.code}</code>
          {next && <p>Available actions: {next}.</p>}
        </div>
        <Retry instance={instance} />
      </div>
    );
  }
  const [last] = instance.operations;
  if (last?.error && last.status === "FAILED") {
    return (
      <div class="banner warning" role="alert">
        <Icon name="warn" />
        <div>
          <strong>{words(last.kind)} failed.</strong> {explain(last.error)} <code>{last.error.code}</code>
          {last.error.retryable && !last.error.help && <p>The error may be temporary. Retry later.</p>}
        </div>
        <Retry instance={instance} />
      </div>
    );
  }
  return null;
}

function Retry({ instance }: { instance: Detail }) {
  const last = instance.operations.find(({ kind }) => kind !== "UPDATE");
  const isFailed = last?.status === "FAILED" && ["CREATE", "START", "DELETE"].includes(last.kind);
  if (!isFailed || !may("OPERATOR")) return null;
  return (
    <button type="button" class="button small" onClick={() => retry(last, instance.name)}>
      Retry {words(last.kind).toLowerCase()}
    </button>
  );
}

function Progress({ instance }: { instance: Detail }) {
  const operation = openOperation(instance);
  if (!operation) return null;
  const isCancellable = operation.kind !== "DELETE" && may("OPERATOR");
  return (
    <div class="progress">
      <div>
        <strong>{words(operation.kind)}</strong>
        <span class="muted">
          {" "}
          · {words(operation.phase).toLowerCase()} · <Since at={operation.createdAt} />
        </span>
        <Expected instance={instance} operation={operation} />
      </div>
      {isCancellable ? (
        <button type="button" class="button small" onClick={() => cancel(operation, instance.name)}>
          Cancel
        </button>
      ) : (
        <span />
      )}
      <div class="bar" role="progressbar" aria-label={`${words(operation.kind)} of ${instance.name}`} aria-valuenow={operation.progress}>
        <i style={{ width: `${Math.max(4, operation.progress)}%` }} />
      </div>
    </div>
  );
}

// The place of a create that waits for its turn, and when the instance is probably ready.
function Expected({ instance, operation }: { instance: Detail; operation: Detail["operations"][number] }) {
  const { queue } = operation;
  const readyAt = operation.estimatedReadyAt && instance.estimatedReadyAt;
  if (!queue && !readyAt) return null;
  return (
    <p class="muted">
      {queue && (
        <>
          Number {queue.position} in line, begins <Until at={queue.startsAt} />
          {readyAt ? "; ready " : "."}
        </>
      )}
      {readyAt && (
        <>
          {!queue && "Ready "}
          <Until at={readyAt} />.
        </>
      )}
    </p>
  );
}

function openOperation(instance: Detail): Detail["operations"][number] | undefined {
  return instance.operations.find((each) => each.status === "QUEUED" || each.status === "RUNNING");
}

function RawEvents({ entries }: { entries: readonly Entry[] }) {
  return (
    <div class="panel raw-events">
      {entries.toReversed().map((entry) => (
        <details key={entry.id}>
          <summary>
            <code>{entry.type}</code>
            <span class="mono muted">{entry.id}</span>
            <time dateTime={entry.occurredAt} class="muted">
              {entry.occurredAt.slice(11, 23)}
            </time>
          </summary>
          <pre class="raw" tabIndex={0}>
            {JSON.stringify(entry, null, 2)}
          </pre>
        </details>
      ))}
    </div>
  );
}
