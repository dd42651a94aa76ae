// The head of an instance: status, price, countdowns and actions; below it what has failed and what can be done.
import type { ComponentChildren } from "preact";
import { extend, perform, retry, type Verb } from "../actions.ts";
import { explain, money, perMonth, words } from "../format.ts";
import type { Detail } from "../live/instance.ts";
import { may } from "../live/viewer.ts";
import { StatusChip, StatusTags } from "../ui/chip.tsx";
import { Icon, type IconName } from "../ui/icons.tsx";
import { lazy } from "../ui/lazy.tsx";
import { Reclaim, Since } from "../ui/since.tsx";
import { Until } from "../ui/until.tsx";
import { openOperation } from "./instance-progress.tsx";

const LastLines = lazy(async () => (await import("./instance-logs.tsx")).LastLines);
const OVER: ReadonlySet<Detail["status"]> = new Set(["DELETING", "DELETED"]);

export function Head({ instance }: { instance: Detail }) {
  return (
    <header class="instance-head">
      <div>
        <h1>
          {instance.name}
          <StatusChip status={instance.status} />
          <StatusTags {...instance} />
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
          {instance.stale && <span>last known status</span>}
          <Countdowns instance={instance} />
        </div>
      </div>
      <Actions instance={instance} />
    </header>
  );
}

function Countdowns({ instance }: { instance: Detail }) {
  const { lifetime } = instance;
  if (OVER.has(instance.status)) return null;
  return (
    <>
      {instance.spotReclaimAt && instance.status !== "EXITED" && (
        <strong>
          <Reclaim at={instance.spotReclaimAt} />
        </strong>
      )}
      {lifetime?.next && (
        <span class="countdown figures">
          <Until next={lifetime.next} />
          {may("OPERATOR") && (lifetime.maxDuration !== null || lifetime.deadline !== null) && (
            <button type="button" class="button small" aria-label={`+1 h for ${instance.name}`} onClick={() => extend(instance)}>
              +1 h
            </button>
          )}
        </span>
      )}
    </>
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
  if (!may("OPERATOR")) return null;
  return (
    <div class="actions">
      {BUTTONS.filter(({ verb }) => instance.actions.includes(verb)).map(({ verb, text, icon }) => (
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
      <a class="button" href={`#/create?like=${instance.id}`}>
        <Icon name="copy" size={14} />
        Duplicate
      </a>
    </div>
  );
}

export function Failure({ instance }: { instance: Detail }) {
  const { failure, exit } = instance;
  const last = instance.operations.find(({ kind }) => kind !== "UPDATE");
  if (failure) {
    const next = BUTTONS.filter(({ verb }) => instance.actions.includes(verb)).map(({ text }) => text.toLowerCase()).join(", ");
    return (
      <Banner instance={instance} tone="bad">
        <strong>Instance failed.</strong> {explain(failure)} <code>{failure.code}</code>
        {exit && <ExitCode exit={exit} />}
        {next && <p>Available actions: {next}.</p>}
        {exit && <Died instance={instance} />}
      </Banner>
    );
  }
  if (exit) {
    return (
      <Banner instance={instance} tone={exit.code === 0 ? "off" : "bad"}>
        <strong>{exit.code === 0 ? "The container has finished." : "The container died."}</strong>
        <ExitCode exit={exit} />
        <Died instance={instance} />
      </Banner>
    );
  }
  if (last?.error && last.status === "FAILED") {
    return (
      <Banner instance={instance} tone="warning">
        <strong>{words(last.kind)} failed.</strong> {explain(last.error)} <code>{last.error.code}</code>
        {last.error.retryable && !last.error.help && <p>The error may be temporary. Retry later.</p>}
      </Banner>
    );
  }
  return null;
}

function Banner({ instance, tone, children }: { instance: Detail; tone: "bad" | "warning" | "off"; children: ComponentChildren }) {
  return (
    <div class={`banner ${tone}`} role="alert">
      <Icon name="warn" />
      <div>{children}</div>
      <Retry instance={instance} />
    </div>
  );
}

// Exit codes above 128 are signals: 137 is 128 + SIGKILL.
const SIGNALS: Record<number, string> = { 9: "SIGKILL, often out of memory", 11: "SIGSEGV", 15: "SIGTERM" };

function ExitCode({ exit }: { exit: NonNullable<Detail["exit"]> }) {
  const signal = exit.code !== null && exit.code > 128 ? SIGNALS[exit.code - 128] : undefined;
  return (
    <p>
      {exit.code === null ? "The provider gives no exit code" : `Exit code ${exit.code}`}
      {signal && ` (${signal})`}. {exit.code !== null && exit.message?.endsWith(` ${exit.code}`) ? "" : exit.message}
    </p>
  );
}

function Died({ instance }: { instance: Detail }) {
  if (!may("OPERATOR")) return null;
  return (
    <>
      <LastLines id={instance.id} />
      <p>
        <a href={`#/instances/${instance.id}/logs`}>The whole log</a>
      </p>
    </>
  );
}

function Retry({ instance }: { instance: Detail }) {
  const last = instance.operations.find(({ kind }) => kind !== "UPDATE");
  const isFailed = last?.status === "FAILED" && ["CREATE", "START", "DELETE"].includes(last.kind);
  if (!isFailed || !may("OPERATOR")) return null;
  return (
    <div class="buttons">
      <button type="button" class="button small" onClick={() => retry(last, instance.name)}>
        Retry {words(last.kind).toLowerCase()}
      </button>
      {last.kind === "CREATE" && (
        <a class="button small" href={`#/create?like=${instance.id}`}>
          Edit and retry
        </a>
      )}
    </div>
  );
}
