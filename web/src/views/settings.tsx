// The server, its caches, who may come in, and how its messages are signed.
import { useEffect, useState } from "preact/hooks";
import { ask, insist, wordsOf } from "../api/request.ts";
import {
  About, type AboutResult, type BreakerState, Caches, type CachesResult, ClearCache, RotateWebhookSecret, SyncFleet,
} from "../generated/api.ts";
import { count, moment, words } from "../format.ts";
import { toast } from "../live/toasts.ts";
import { told } from "../live/told.ts";
import { may, runsServer, viewer } from "../live/viewer.ts";
import { signOut } from "../session.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { confirmed } from "../ui/confirm.tsx";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";
import { Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
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
          {runsServer() && <CachesPanel />}
        </div>
        <div class="stack">
          <You />
          <TokensPanel />
          <Secret />
        </div>
      </div>
    </div>
  );
}

function You() {
  const who = viewer.value;
  return (
    <Panel title="You">
      <dl class="facts body">
        <dt>Token</dt>
        <dd>{who?.token.name ?? "–"}</dd>
        <dt>Project</dt>
        <dd>{who?.project.name ?? "–"}</dd>
        <dt>May</dt>
        <dd>{who ? ROLES[who.role] : "–"}</dd>
        {who?.token.expiresAt && (
          <>
            <dt>Until</dt>
            <dd>{moment(who.token.expiresAt)}</dd>
          </>
        )}
      </dl>
      <p class="body foot">
        <button type="button" class="button small" onClick={() => signOut()}>
          Use another token
        </button>
      </p>
    </Panel>
  );
}

const ROLES = {
  READER: "read and watch (READER)",
  OPERATOR: "read, watch and ask for things (OPERATOR)",
  ADMIN: "do everything in the project (ADMIN)",
} as const;

const BREAKER: Record<BreakerState, { tone: Tone; text: string }> = {
  CLOSED: { tone: "good", text: "Called as usual" },
  HALF_OPEN: { tone: "leaving", text: "The next call decides" },
  OPEN: { tone: "bad", text: "Not called for a while" },
};

function Server() {
  const [info, setInfo] = useState<AboutResult["serverInfo"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = () => {
    setProblem(null);
    ask(About, {})
      .then((found) => setInfo(found.serverInfo))
      .catch((error: unknown) => setProblem(wordsOf(error)));
  };
  useEffect(load, []);
  const compare = () =>
    told(async () => {
      const { report, errors } = (await insist(SyncFleet, {})).syncFleet;
      if (report) toast({ kind: "good", title: `${count(report.compared, "instance")} compared with the provider`, text: changes(report) });
      return errors;
    });
  return (
    <Panel
      title="Server"
      aside={
        <button type="button" class="icon-button" aria-label="Read again" onClick={load}>
          <Icon name="refresh" size={16} />
        </button>
      }
    >
      {problem && <Problem retry={load}>{problem}</Problem>}
      <dl class="facts body">
        <dt>Version</dt>
        <dd>{info?.version ?? "–"}</dd>
        <dt>Running for</dt>
        <dd>{info ? <Since at={info.startedAt} /> : "–"}</dd>
        <dt>Provider</dt>
        <dd>
          {info ? (
            <>
              <span class="mono">{info.provider.host}</span> {info.provider.isSimulator && <Chip tone="leaving">Simulator: nothing real, nothing billed</Chip>}
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
        <dd>{info ? info.workers || <Chip tone="bad">None: accepted work waits</Chip> : "–"}</dd>
        <dt>Event log</dt>
        <dd>{info ? <Chip tone={info.eventLog.hasSequencer && info.eventLog.isFollowed ? "good" : "bad"}>{logWords(info.eventLog)}</Chip> : "–"}</dd>
        <dt>Caches</dt>
        <dd>{info ? (info.features.sharesCaches ? "shared between processes" : "each process its own") : "–"}</dd>
      </dl>
      <div class="body foot">
        <button type="button" class="button small" disabled={!may("OPERATOR")} onClick={compare}>
          <Icon name="refresh" size={12} />
          Compare with the provider now
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

function logWords(log: AboutResult["serverInfo"]["eventLog"]): string {
  if (!log.hasSequencer) return "Nobody orders new events";
  return log.isFollowed ? "Followed" : "Not followed by this process";
}

function changes(report: Record<"started" | "stopped" | "reclaimed" | "gone" | "noted", number>): string {
  const found = Object.entries(report).filter(([name, number]) => name !== "compared" && number > 0);
  return found.length ? found.map(([name, number]) => `${number} ${name}`).join(", ") : "Nothing differs";
}

function CachesPanel() {
  const [caches, setCaches] = useState<CachesResult["cacheStats"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = () => {
    ask(Caches, {})
      .then((found) => setCaches(found.cacheStats))
      .catch((error: unknown) => setProblem(wordsOf(error)));
  };
  useEffect(load, []);
  const clear = async (name: string) => {
    await told(async () => (await insist(ClearCache, { input: { name } })).clearCache.errors, { done: "Emptied" });
    load();
  };
  return (
    <Panel
      title="Caches"
      aside={
        <button type="button" class="icon-button" aria-label="Read the caches again" onClick={load}>
          <Icon name="refresh" size={16} />
        </button>
      }
    >
      {problem && <Problem>{problem}</Problem>}
      <table class="grid-table cards-on-phone">
        <thead>
          <tr>
            <th scope="col">Cache</th>
            <th scope="col" class="right">Values</th>
            <th scope="col" class="right">Hits</th>
            <th scope="col" class="right">Misses</th>
            <th scope="col" class="right">Ratio</th>
            <th scope="col">
              <span class="hidden">Do</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {(caches ?? []).map((cache) => (
            <tr key={cache.name}>
              <td data-label="Cache">{cache.name}</td>
              <td data-label="Values" class="right">{cache.size}</td>
              <td data-label="Hits" class="right">{cache.hits}</td>
              <td data-label="Misses" class="right">{cache.misses}</td>
              <td data-label="Ratio" class="right">{cache.hits + cache.misses > 0 ? `${Math.round(cache.ratio * 100)} %` : "–"}</td>
              <td class="right">
                <button type="button" class="button small" aria-label={`Empty ${cache.name}`} onClick={() => clear(cache.name)}>
                  Empty
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function Secret() {
  const [secret, setSecret] = useState<string | null>(null);
  const rotate = async () => {
    const yes = await confirmed({
      title: "Make a new webhook secret?",
      body: "It is shown once. For a day, messages are signed with the old one as well, so that receivers can change over.",
      action: "Make a new one",
      isDangerous: true,
    });
    if (!yes) return;
    await told(async () => {
      const payload = (await insist(RotateWebhookSecret, { input: {} })).rotateWebhookSecret;
      setSecret(payload.secret);
      return payload.errors;
    });
  };
  return (
    <Panel title="Webhook secret">
      <div class="body">
        <p class="muted">Messages to webhooks are signed with it, so that receivers know that they come from here.</p>
        {secret && (
          <div class="secret">
            <span class="mono">{secret}</span>
            <Copy text={secret} label="the secret" />
          </div>
        )}
        <button type="button" class="button small" disabled={!may("ADMIN")} onClick={rotate}>
          <Icon name="key" size={14} />
          Make a new one
        </button>
      </div>
    </Panel>
  );
}
