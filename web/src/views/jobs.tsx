// The job queue: jobs by kind, and failed jobs.
import { useEffect, useState } from "preact/hooks";
import { subscribe } from "../api/subscriptions.ts";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import {
  FailedJobs, type FailedJobsResult, PauseJobs, ResumeJobs, RetryJob, RetryJobs, WatchJobStats, type WatchJobStatsResult,
} from "../generated/api.ts";
import { count, moment, seconds, words } from "../format.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may, runsServer } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { confirm } from "../ui/confirm.tsx";
import { Icon } from "../ui/icons.tsx";
import { Empty, Panel, Problem } from "../ui/parts.tsx";

type Kind = WatchJobStatsResult["jobStats"]["kinds"][number];

export function JobsView() {
  const [stats, setStats] = useState<WatchJobStatsResult["jobStats"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(
    () =>
      subscribe(WatchJobStats, () => ({}), {
        next: ({ jobStats }) => setStats(jobStats),
        onError: (_code, message) => setProblem(message),
      }),
    [],
  );
  const failed = (stats?.kinds ?? []).reduce((sum, kind) => sum + kind.failed, 0);
  return (
    <div class="view">
      <header class="view-head">
        <h1>Jobs</h1>
        {stats && (
          <Chip tone={stats.workers > 0 ? "good" : "bad"}>
            {stats.workers > 0 ? `${count(stats.workers, "worker")} running` : "No workers running: jobs are waiting"}
          </Chip>
        )}
      </header>
      {problem && <Problem>{problem}</Problem>}
      {!stats && !problem && <p class="muted">Loading …</p>}
      {stats && <Kinds kinds={stats.kinds} />}
      {stats && <FailedJobsPanel failed={failed} />}
    </div>
  );
}

function Kinds({ kinds }: { kinds: readonly Kind[] }) {
  if (kinds.length === 0) {
    return (
      <Empty icon="jobs" title="No jobs yet">
        <p>
          Background work runs as jobs: creating instances, monitoring, health checks, webhook deliveries.{" "}
          <a href="#/create">Create an instance</a> to see its jobs here.
        </p>
      </Empty>
    );
  }
  return (
    <Panel title="Jobs by kind" aside={<span class="muted">rates and percentiles of the last 5 minutes</span>}>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Table of jobs by kind">
        <table class="grid-table kinds cards-on-phone in-pairs">
          <thead>
            <tr>
              <th scope="col">Kind</th>
              <th scope="col" class="right">Waiting</th>
              <th scope="col" class="right">Oldest</th>
              <th scope="col" class="right">Running</th>
              <th scope="col" class="right">Scheduled</th>
              <th scope="col" class="right">Failed</th>
              <th scope="col" class="right">Finished/min</th>
              <th scope="col" class="right">Pickup p95</th>
              <th scope="col" class="right">Run p95</th>
              <th scope="col">
                <span class="hidden">Actions</span>
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
                      <Chip tone="warning">Paused</Chip>
                    </>
                  )}
                </td>
                <td data-label="Waiting" class="right">{kind.waiting}</td>
                <td data-label="Oldest" class="right">{seconds(kind.oldestWaiting)}</td>
                <td data-label="Running" class="right">{kind.running}</td>
                <td data-label="Scheduled" class="right">{kind.scheduled}</td>
                <td data-label="Failed" class="right">{kind.failed > 0 ? <strong class="bad-text">{kind.failed}</strong> : 0}</td>
                <td data-label="Finished/min" class="right">{kind.finishedPerMinute.toFixed(1)}</td>
                <td data-label="Pickup p95" class="right">{seconds(kind.pickupP95)}</td>
                <td data-label="Run p95" class="right">{seconds(kind.runP95)}</td>
                <td class="right">
                  <button type="button" class="button small" disabled={!runsServer()} onClick={() => pauseOrResume(kind)} aria-label={`${kind.pausedAt ? "Resume" : "Pause"}: ${words(kind.kind)}`}>
                    <Icon name={kind.pausedAt ? "start" : "pause"} size={12} />
                    {kind.pausedAt ? "Resume" : "Pause"}
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

async function pauseOrResume(kind: Kind): Promise<void> {
  const input = { kind: kind.kind };
  if (kind.pausedAt) {
    await runMutation(async () => (await requestWithRetry(ResumeJobs, { input })).resumeJobs.errors);
    return;
  }
  const isConfirmed = await confirm({
    title: `Pause ${words(kind.kind).toLowerCase()} jobs?`,
    body: "Running jobs finish; all others wait until you resume them. This applies to all processes and outlasts restarts.",
    action: "Pause",
    isDangerous: true,
  });
  if (isConfirmed) await runMutation(async () => (await requestWithRetry(PauseJobs, { input })).pauseJobs.errors);
}

function FailedJobsPanel({ failed }: { failed: number }) {
  const [page, setPage] = useState<FailedJobsResult["jobs"] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  // The statistics are pushed; a changed number of failed jobs reloads the list.
  useEffect(() => {
    const abort = new AbortController();
    request(FailedJobs, {}, abort.signal)
      .then(({ jobs }) => setPage(jobs))
      .catch((error: unknown) => {
        if (!abort.signal.aborted) setProblem(messageOf(error));
      });
    return () => abort.abort();
  }, [failed]);
  const retryAll = async () => {
    const isConfirmed = await confirm({
      title: `Retry ${count(failed, "failed job")}?`,
      body: "Each gets its full number of attempts again, oldest first.",
      action: "Retry",
    });
    if (isConfirmed) await runMutation(async () => (await requestWithRetry(RetryJobs, { input: {} })).retryJobs.errors, { succeeded: "Jobs queued for retry" });
  };
  const jobs = page?.nodes ?? [];
  return (
    <Panel
      title="Failed jobs"
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
      {page && jobs.length === 0 && <p class="body muted">No failed jobs. Jobs that failed permanently are kept for 7 days and can be retried.</p>}
      {jobs.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Table of failed jobs">
          <table class="grid-table cards-on-phone">
            <thead>
              <tr>
                <th scope="col">Kind</th>
                <th scope="col">Error</th>
                <th scope="col">Instance</th>
                <th scope="col">Failed at</th>
                <th scope="col">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.id}>
                  <td data-label="Kind">{words(job.kind)}</td>
                  <td data-label="Error" class="error-cell">
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
                  <td data-label="Failed at" class="figures">{moment(job.finishedAt ?? job.createdAt)}</td>
                  <td class="right">
                    <button
                      type="button"
                      class="button small"
                      disabled={!may("OPERATOR")}
                      onClick={() => runMutation(async () => (await requestWithRetry(RetryJob, { input: { id: job.id } })).retryJob.errors, { succeeded: "Job queued for retry" })}
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
