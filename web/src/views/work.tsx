// The queue behind it all: what waits, what runs, what was given up.
import { useEffect, useState } from "preact/hooks";
import { watch } from "../api/live.ts";
import { ask, insist, wordsOf } from "../api/request.ts";
import {
  FailedJobs, type FailedJobsResult, PauseJobs, ResumeJobs, RetryJob, RetryJobs, WatchJobStats, type WatchJobStatsResult,
} from "../generated/api.ts";
import { count, moment, seconds, words } from "../format.ts";
import { told } from "../live/told.ts";
import { may, runsServer } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { confirmed } from "../ui/confirm.tsx";
import { Icon } from "../ui/icons.tsx";
import { Empty, Panel, Problem } from "../ui/parts.tsx";

type Kind = WatchJobStatsResult["jobStats"]["kinds"][number];

export function WorkView() {
  const [stats, setStats] = useState<WatchJobStatsResult["jobStats"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(
    () =>
      watch(WatchJobStats, () => ({}), {
        next: ({ jobStats }) => setStats(jobStats),
        refused: (_code, message) => setProblem(message),
      }),
    [],
  );
  const failed = (stats?.kinds ?? []).reduce((sum, kind) => sum + kind.failed, 0);
  return (
    <div class="view">
      <header class="view-head">
        <h1>Work</h1>
        {stats && (
          <Chip tone={stats.workers > 0 ? "good" : "bad"}>
            {stats.workers > 0 ? `${count(stats.workers, "worker")} alive` : "No worker is alive: accepted work waits"}
          </Chip>
        )}
      </header>
      {problem && <Problem>{problem}</Problem>}
      {!stats && !problem && <p class="muted">Reading …</p>}
      {stats && <Kinds kinds={stats.kinds} />}
      {stats && <Failures failed={failed} />}
    </div>
  );
}

function Kinds({ kinds }: { kinds: readonly Kind[] }) {
  if (kinds.length === 0) {
    return (
      <Empty icon="work" title="Nothing to do">
        <p>
          What you ask for becomes a job here: creating, watching, probing, telling webhooks. <a href="#/create">Create an instance</a> and
          see it go through.
        </p>
      </Empty>
    );
  }
  return (
    <Panel title="By kind" aside={<span class="muted">rates and times of the last five minutes</span>}>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Jobs by kind">
        <table class="grid-table kinds cards-on-phone">
          <thead>
            <tr>
              <th scope="col">Kind</th>
              <th scope="col" class="right">Waiting</th>
              <th scope="col" class="right">Oldest</th>
              <th scope="col" class="right">Running</th>
              <th scope="col" class="right">Later</th>
              <th scope="col" class="right">Failed</th>
              <th scope="col" class="right">Done a minute</th>
              <th scope="col" class="right">Pickup p95</th>
              <th scope="col" class="right">Run p95</th>
              <th scope="col">
                <span class="hidden">Do</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {kinds.map((kind) => (
              <tr key={kind.kind}>
                <td data-label="Kind">
                  <strong>{words(kind.kind)}</strong>
                  {kind.pausedAt && (
                    <>
                      {" "}
                      <Chip tone="leaving">Held back</Chip>
                    </>
                  )}
                </td>
                <td data-label="Waiting" class="right">{kind.waiting}</td>
                <td data-label="Oldest" class="right">{seconds(kind.oldestWaiting)}</td>
                <td data-label="Running" class="right">{kind.running}</td>
                <td data-label="Later" class="right">{kind.scheduled}</td>
                <td data-label="Failed" class="right">{kind.failed > 0 ? <strong class="bad-text">{kind.failed}</strong> : 0}</td>
                <td data-label="Done a minute" class="right">{kind.finishedPerMinute.toFixed(1)}</td>
                <td data-label="Pickup p95" class="right">{seconds(kind.pickupP95)}</td>
                <td data-label="Run p95" class="right">{seconds(kind.runP95)}</td>
                <td class="right">
                  <button type="button" class="button small" disabled={!runsServer()} onClick={() => holdOrLetGo(kind)} aria-label={`${kind.pausedAt ? "Let go" : "Hold back"}: ${words(kind.kind)}`}>
                    <Icon name={kind.pausedAt ? "start" : "pause"} size={12} />
                    {kind.pausedAt ? "Let go" : "Hold back"}
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

async function holdOrLetGo(kind: Kind): Promise<void> {
  const input = { kind: kind.kind };
  if (kind.pausedAt) {
    await told(async () => (await insist(ResumeJobs, { input })).resumeJobs.errors);
    return;
  }
  const yes = await confirmed({
    title: `Hold ${words(kind.kind).toLowerCase()} back?`,
    body: "In all processes and across restarts, until you let it go again. What is running finishes; the rest waits.",
    action: "Hold back",
    isDangerous: true,
  });
  if (yes) await told(async () => (await insist(PauseJobs, { input })).pauseJobs.errors);
}

function Failures({ failed }: { failed: number }) {
  const [page, setPage] = useState<FailedJobsResult["jobs"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  // The figures are pushed; whenever that of the failed ones changes, they are read again.
  useEffect(() => {
    const abort = new AbortController();
    ask(FailedJobs, {}, abort.signal)
      .then(({ jobs }) => setPage(jobs))
      .catch((error: unknown) => {
        if (!abort.signal.aborted) setProblem(wordsOf(error));
      });
    return () => abort.abort();
  }, [failed]);
  const retryAll = async () => {
    const yes = await confirmed({
      title: `Run ${count(failed, "failed job")} again?`,
      body: "Each with all its attempts ahead of it, the oldest first.",
      action: "Run again",
    });
    if (yes) await told(async () => (await insist(RetryJobs, { input: {} })).retryJobs.errors, { done: "They will run again" });
  };
  const jobs = page?.nodes ?? [];
  return (
    <Panel
      title="Given up"
      aside={
        jobs.length > 0 && (
          <button type="button" class="button small" disabled={!may("OPERATOR")} onClick={retryAll}>
            <Icon name="refresh" size={12} />
            Retry all
          </button>
        )
      }
    >
      {problem && <Problem>{problem}</Problem>}
      {page && jobs.length === 0 && <p class="body muted">No job was given up. What fails for good is kept here for a week, to be run again.</p>}
      {jobs.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Jobs that were given up">
          <table class="grid-table cards-on-phone">
            <thead>
              <tr>
                <th scope="col">Kind</th>
                <th scope="col">Why</th>
                <th scope="col">Instance</th>
                <th scope="col">When</th>
                <th scope="col">
                  <span class="hidden">Do</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.id}>
                  <td data-label="Kind">{words(job.kind)}</td>
                  <td data-label="Why" class="error-cell">
                    {job.errorMessage ?? "–"} {job.errorCode && <code>{job.errorCode}</code>}
                  </td>
                  <td data-label="Instance">
                    {job.instanceId ? (
                      <a class="mono" href={`#/instances/${job.instanceId}`}>
                        …{job.instanceId.slice(-8)}
                      </a>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td data-label="When" class="figures">{moment(job.finishedAt ?? job.createdAt)}</td>
                  <td class="right">
                    <button
                      type="button"
                      class="button small"
                      disabled={!may("OPERATOR")}
                      onClick={() => told(async () => (await insist(RetryJob, { input: { id: job.id } })).retryJob.errors, { done: "It will run again" })}
                    >
                      Retry
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
