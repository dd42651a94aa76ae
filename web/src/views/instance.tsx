// One instance: status, actions, timeline, endpoints, logs, usage, operations, webhook deliveries and events.
import { useEffect, useState } from "preact/hooks";
import { type Entry, followInstance, type InstanceFeed } from "../live/instance.ts";
import { may } from "../live/viewer.ts";
import { fleetHash, go } from "../route.ts";
import { Icon } from "../ui/icons.tsx";
import { lazy } from "../ui/lazy.tsx";
import { Empty, Problem, Tabs } from "../ui/parts.tsx";
import { Failure, Head } from "./instance-head.tsx";
import { Overview } from "./instance-overview.tsx";
import { Progress } from "./instance-progress.tsx";

const LogsTab = lazy(async () => (await import("./instance-logs.tsx")).LogsTab);
const UsageTab = lazy(async () => (await import("./instance-usage.tsx")).UsageTab);
const Operations = lazy(async () => (await import("./instance-operations.tsx")).Operations);
const Deliveries = lazy(async () => (await import("./instance-deliveries.tsx")).Deliveries);
const EditTab = lazy(async () => (await import("./instance-edit.tsx")).EditTab);

const TABS = ["overview", "logs", "usage", "operations", "webhooks", "events", "edit"] as const;
type Tab = (typeof TABS)[number];

export function InstanceView({ id, tab }: { id: string; tab: string | null }) {
  const [feed, setFeed] = useState<InstanceFeed>({ phase: "loading" });
  const current = TABS.find((each) => each === tab) ?? "overview";
  useEffect(() => followInstance(id, setFeed), [id]);

  return (
    <div class="view">
      <a class="crumb" href={fleetHash.value}>
        <Icon name="back" size={14} />
        Fleet
      </a>
      {feed.phase === "loading" && <p class="muted">Loading …</p>}
      {feed.phase === "missing" && (
        <Empty icon="fleet" title="Instance not found">
          <p>It does not exist, or belongs to another project.</p>
          <p>
            <a class="button" href="#/">
              Show the fleet
            </a>
          </p>
        </Empty>
      )}
      {feed.phase === "error" && <Problem>{feed.message}</Problem>}
      {feed.phase === "loaded" && (
        <>
          <Head instance={feed.instance} />
          <Failure instance={feed.instance} />
          <Progress instance={feed.instance} entries={feed.entries} />
          <Tabs<Tab>
            label="Instance details"
            value={current}
            onChange={(value) => go(`#/instances/${id}${value === "overview" ? "" : `/${value}`}`)}
            tabs={[
              { value: "overview", text: "Overview" },
              { value: "logs", text: "Logs" },
              { value: "usage", text: "Usage" },
              { value: "operations", text: "Operations", count: feed.instance.operations.length },
              { value: "webhooks", text: "Webhooks" },
              { value: "events", text: "Raw events", count: feed.entries.length },
              ...(may("OPERATOR") ? [{ value: "edit" as const, text: "Edit" }] : []),
            ]}
          >
            {current === "overview" && <Overview instance={feed.instance} entries={feed.entries} refresh={feed.refresh} />}
            {current === "logs" && <LogsTab instance={feed.instance} />}
            {current === "usage" && <UsageTab instance={feed.instance} />}
            {current === "operations" && <Operations instance={feed.instance} entries={feed.entries} />}
            {current === "webhooks" && <Deliveries instance={feed.instance} lastEventId={feed.entries.at(-1)?.id} />}
            {current === "events" && <RawEvents entries={feed.entries} />}
            {current === "edit" && <EditTab instance={feed.instance} refresh={feed.refresh} />}
          </Tabs>
        </>
      )}
    </div>
  );
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
