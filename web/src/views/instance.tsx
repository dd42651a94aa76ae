// One instance: where it stands, how it came there, how to reach it, and everything that was ever said about it.
import { useEffect, useState } from "preact/hooks";
import { cancel, perform, type Verb } from "../actions.ts";
import { type Detail, type Entry, followInstance, type Story } from "../live/story.ts";
import { may } from "../live/viewer.ts";
import { money, perMonth, words } from "../format.ts";
import { StatusChip } from "../ui/chip.tsx";
import { Icon, type IconName } from "../ui/icons.tsx";
import { Empty, Problem, Tabs } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { Deliveries } from "./instance-deliveries.tsx";
import { Operations } from "./instance-operations.tsx";
import { Overview } from "./instance-overview.tsx";

type Tab = "overview" | "operations" | "webhooks" | "events";

export function InstanceView({ id }: { id: string }) {
  const [story, setStory] = useState<Story>({ phase: "loading" });
  const [tab, setTab] = useState<Tab>("overview");
  useEffect(() => followInstance(id, setStory), [id]);

  return (
    <div class="view">
      <a class="crumb" href="#/">
        <Icon name="back" size={14} />
        Fleet
      </a>
      {story.phase === "loading" && <p class="muted">Reading …</p>}
      {story.phase === "missing" && (
        <Empty icon="fleet" title="There is no such instance">
          <p>It was never here, or belongs to another project.</p>
        </Empty>
      )}
      {story.phase === "refused" && <Problem>{story.message}</Problem>}
      {story.phase === "told" && (
        <>
          <Head instance={story.instance} />
          <Failure instance={story.instance} />
          <Underway instance={story.instance} />
          <Tabs<Tab>
            label="About this instance"
            value={tab}
            onChange={setTab}
            tabs={[
              { value: "overview", text: "Overview" },
              { value: "operations", text: "Operations", count: story.instance.operations.length },
              { value: "webhooks", text: "Webhooks" },
              { value: "events", text: "Raw events", count: story.entries.length },
            ]}
          >
            {tab === "overview" && <Overview instance={story.instance} entries={story.entries} refresh={story.refresh} />}
            {tab === "operations" && <Operations instance={story.instance} />}
            {tab === "webhooks" && <Deliveries instance={story.instance} last={story.entries.at(-1)?.id} />}
            {tab === "events" && <Raw entries={story.entries} />}
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
          <span class="muted since">
            <Since at={instance.statusSince} />
          </span>
        </h1>
        <div class="sub">
          <span>
            {instance.productName} × {instance.gpuCount}
          </span>
          <span>{instance.region ?? `not placed yet, first ${instance.regions[0] ?? "anywhere"}`}</span>
          {instance.pricePerHour && (
            <span class="figures">
              {money(instance.pricePerHour)} an hour, ≈ {perMonth(instance.pricePerHour)} a month
              {instance.billingMode === "SPOT" && <span class="tag">spot</span>}
            </span>
          )}
          {instance.spotReclaimAt && <strong>will be taken back</strong>}
          {instance.stale && <span>last known state</span>}
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
  { verb: "MIGRATE", text: "Move", icon: "move" },
  { verb: "DELETE", text: "Delete", icon: "trash" },
];

function Actions({ instance }: { instance: Detail }) {
  // While something is under way the server accepts nothing but a delete.
  const isBusy = underway(instance) !== undefined;
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
          <strong>Why it failed.</strong> {failure.message} <code>{failure.code}</code>
          {next && <p>What can be done now: {next}.</p>}
        </div>
      </div>
    );
  }
  const [last] = instance.operations;
  if (last?.error && last.status === "FAILED") {
    return (
      <div class="banner leaving" role="alert">
        <Icon name="warn" />
        <div>
          <strong>{words(last.kind)} failed.</strong> {last.error.message} <code>{last.error.code}</code>
          {last.error.retryable && <p>It makes sense to try again later.</p>}
        </div>
      </div>
    );
  }
  return null;
}

function Underway({ instance }: { instance: Detail }) {
  const operation = underway(instance);
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
      </div>
      {isCancellable ? (
        <button type="button" class="button small" onClick={() => cancel(operation, instance.name)}>
          Call it off
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

function underway(instance: Detail): Detail["operations"][number] | undefined {
  return instance.operations.find((each) => each.status === "QUEUED" || each.status === "RUNNING");
}

function Raw({ entries }: { entries: readonly Entry[] }) {
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
