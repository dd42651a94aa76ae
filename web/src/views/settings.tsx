// Server information, caches, tokens and the webhook secret.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import {
  ServerInfo, type ServerInfoResult, type BreakerState, Caches, type CachesResult, ClearCache, RotateWebhookSecret, SyncFleet,
} from "../generated/api.ts";
import { count, moment, words } from "../format.ts";
import { toast } from "../live/toasts.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may, runsServer, viewer } from "../live/viewer.ts";
import { signOut } from "../session.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { confirm } from "../ui/confirm.tsx";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";
import { Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { PolicyPanel } from "./settings-policy.tsx";
import { ProjectsPanel } from "./settings-projects.tsx";
import { TokensPanel } from "./settings-tokens.tsx";

export function SettingsView() {
  return (
    <div class="view">
      <header class="view-head">
        <h1>Settings</h1>
        <a class="button" href="/graphql">
          <Icon name="open" size={14} />
          GraphiQL
        </a>
      </header>
      <div class="columns even">
        <div class="stack">
          <Server />
          {runsServer() && <ProjectsPanel />}
          {runsServer() && <CachesPanel />}
        </div>
        <div class="stack">
          <CurrentToken />
          <TokensPanel />
          <PolicyPanel />
          <WebhookSecret />
        </div>
      </div>
    </div>
  );
}

function CurrentToken() {
  const current = viewer.value;
  return (
    <Panel title="Current token">
      <dl class="facts body">
        <dt>Name</dt>
        <dd>{current?.token.name ?? "–"}</dd>
        <dt>Project</dt>
        <dd>{current?.project.name ?? "–"}</dd>
        <dt>Role</dt>
        <dd>{current ? ROLES[current.role] : "–"}</dd>
        {current?.token.expiresAt && (
          <>
            <dt>Expires</dt>
            <dd>{moment(current.token.expiresAt)}</dd>
          </>
        )}
      </dl>
      <p class="body foot">
        <button type="button" class="button small" onClick={() => signOut()}>
          Sign out
        </button>
      </p>
    </Panel>
  );
}

const ROLES = {
  READER: "READER: read and subscribe",
  OPERATOR: "OPERATOR: read, subscribe, change instances",
  ADMIN: "ADMIN: everything in the project",
} as const;

const BREAKER: Record<BreakerState, { tone: Tone; text: string }> = {
  CLOSED: { tone: "good", text: "Closed (normal)" },
  HALF_OPEN: { tone: "warning", text: "Half open (testing)" },
  OPEN: { tone: "bad", text: "Open (calls suspended)" },
};

function Server() {
  const [info, setInfo] = useState<ServerInfoResult["serverInfo"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = () => {
    setProblem(null);
    request(ServerInfo, {})
      .then((loaded) => setInfo(loaded.serverInfo))
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  useEffect(load, []);
  const sync = () =>
    runMutation(async () => {
      const { report, errors } = (await requestWithRetry(SyncFleet, {})).syncFleet;
      if (report) toast({ kind: "good", title: `Compared ${count(report.compared, "instance")} with the provider`, text: changes(report) });
      return errors;
    });
  return (
    <Panel
      title="Server"
      aside={
        <button type="button" class="icon-button" aria-label="Refresh" onClick={load}>
          <Icon name="refresh" size={16} />
        </button>
      }
    >
      {problem && <Problem retry={load}>{problem}</Problem>}
      <dl class="facts body">
        <dt>Version</dt>
        <dd>{info?.version ?? "–"}</dd>
        <dt>Uptime</dt>
        <dd>{info ? <Since at={info.startedAt} /> : "–"}</dd>
        <dt>Provider</dt>
        <dd>
          {info ? (
            <>
              <span class="mono">{info.provider.host}</span> {info.provider.isSimulator && <Chip tone="warning">Simulator (no charges)</Chip>}
            </>
          ) : (
            "–"
          )}
        </dd>
        <dt>Circuit breaker</dt>
        <dd>
          {info ? (
            <>
              <Chip tone={BREAKER[info.provider.breaker].tone}>{BREAKER[info.provider.breaker].text}</Chip>
              {info.provider.suspended.length > 0 && <span class="muted"> {info.provider.suspended.join(", ")}</span>}
              {info.provider.retryAt && <span class="muted"> until {moment(info.provider.retryAt)}</span>}
            </>
          ) : (
            "–"
          )}
        </dd>
        <dt>Database</dt>
        <dd>{info ? `PostgreSQL ${info.database.version}, ${words(info.database.kind).toLowerCase()}` : "–"}</dd>
        <dt>Workers</dt>
        <dd>{info ? info.workers || <Chip tone="bad">None: jobs are waiting</Chip> : "–"}</dd>
        <dt>Event log</dt>
        <dd>{info ? <Chip tone={info.eventLog.hasSequencer && info.eventLog.isFollowed ? "good" : "bad"}>{logStatus(info.eventLog)}</Chip> : "–"}</dd>
        <dt>Caches</dt>
        <dd>{info ? (info.features.sharesCaches ? "shared between processes" : "one per process") : "–"}</dd>
      </dl>
      <div class="body foot">
        <button type="button" class="button small" disabled={!may("OPERATOR")} onClick={sync}>
          <Icon name="refresh" size={12} />
          Sync with provider
        </button>
      </div>
      {info && (
        <details class="body foot">
          <summary>All {info.settings.length} settings</summary>
          <dl class="facts settings">
            {info.settings.map((each) => (
              <>
                <dt class="mono">{each.name}</dt>
                <dd class="mono">{each.value || "–"}</dd>
              </>
            ))}
          </dl>
        </details>
      )}
    </Panel>
  );
}

function logStatus(log: ServerInfoResult["serverInfo"]["eventLog"]): string {
  if (!log.hasSequencer) return "No sequencer: new events are delayed";
  return log.isFollowed ? "Following" : "Not followed by this process";
}

function changes(report: Record<"started" | "stopped" | "reclaimed" | "gone" | "noted", number>): string {
  const differences = Object.entries(report).filter(([name, number]) => name !== "compared" && number > 0);
  return differences.length ? differences.map(([name, number]) => `${number} ${name}`).join(", ") : "No differences";
}

function CachesPanel() {
  const [caches, setCaches] = useState<CachesResult["cacheStats"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = () => {
    request(Caches, {})
      .then((loaded) => setCaches(loaded.cacheStats))
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  useEffect(load, []);
  const clear = async (name: string) => {
    await runMutation(async () => (await requestWithRetry(ClearCache, { input: { name } })).clearCache.errors, { succeeded: "Cache cleared" });
    load();
  };
  return (
    <Panel
      title="Caches"
      aside={
        <button type="button" class="icon-button" aria-label="Refresh caches" onClick={load}>
          <Icon name="refresh" size={16} />
        </button>
      }
    >
      {problem && <Problem>{problem}</Problem>}
      <table class="grid-table cards-on-phone in-pairs">
        <thead>
          <tr>
            <th scope="col">Cache</th>
            <th scope="col" class="right">Entries</th>
            <th scope="col" class="right">Hits</th>
            <th scope="col" class="right">Misses</th>
            <th scope="col" class="right">Hit ratio</th>
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {(caches ?? []).map((cache) => (
            <tr key={cache.name}>
              <td data-label="Cache">{cache.name}</td>
              <td data-label="Entries" class="right">{cache.size}</td>
              <td data-label="Hits" class="right">{cache.hits}</td>
              <td data-label="Misses" class="right">{cache.misses}</td>
              <td data-label="Hit ratio" class="right">{cache.hits + cache.misses > 0 ? `${Math.round(cache.ratio * 100)} %` : "–"}</td>
              <td class="right">
                <button type="button" class="button small" aria-label={`Clear ${cache.name}`} onClick={() => clear(cache.name)}>
                  Clear
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function WebhookSecret() {
  const [secret, setSecret] = useState<string | null>(null);
  const rotate = async () => {
    const isConfirmed = await confirm({
      title: "Rotate the webhook secret?",
      body: "The new secret is shown once. For 24 hours deliveries are signed with the old one as well, so that receivers can switch.",
      action: "Rotate secret",
      isDangerous: true,
    });
    if (!isConfirmed) return;
    await runMutation(async () => {
      const payload = (await requestWithRetry(RotateWebhookSecret, { input: {} })).rotateWebhookSecret;
      setSecret(payload.secret);
      return payload.errors;
    });
  };
  return (
    <Panel title="Webhook secret">
      <div class="body">
        <p class="muted">Webhook deliveries are signed with this secret, so that receivers can verify the sender.</p>
        {secret && (
          <div class="secret">
            <span class="mono">{secret}</span>
            <Copy text={secret} label="the secret" />
          </div>
        )}
        <button type="button" class="button small" disabled={!may("ADMIN")} onClick={rotate}>
          <Icon name="key" size={14} />
          Rotate secret
        </button>
      </div>
    </Panel>
  );
}
