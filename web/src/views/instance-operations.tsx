// What was asked of it, with every attempt and why it failed.
import { brief, moment, money, words } from "../format.ts";
import type { AttemptStatus, OperationStatus } from "../generated/api.ts";
import type { Detail } from "../live/story.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { Since } from "../ui/since.tsx";

const TONES: Record<OperationStatus, Tone> = {
  QUEUED: "moving",
  RUNNING: "moving",
  SUCCEEDED: "good",
  FAILED: "bad",
  CANCELLED: "off",
  SUPERSEDED: "off",
};

const ATTEMPTS: Record<AttemptStatus, Tone> = {
  ASKING: "moving",
  UNKNOWN: "leaving",
  CREATED: "good",
  REJECTED: "bad",
  ABSENT: "off",
};

export function Operations({ instance }: { instance: Detail }) {
  return (
    <div class="stack">
      {instance.operations.map((operation) => (
        <section key={operation.id} class="panel" aria-label={words(operation.kind)}>
          <header>
            <h2>{words(operation.kind)}</h2>
            <Chip tone={TONES[operation.status]}>{words(operation.status)}</Chip>
          </header>
          <dl class="facts body">
            <dt>Asked</dt>
            <dd>{moment(operation.createdAt)}</dd>
            <dt>{operation.finishedAt ? "Took" : "Running for"}</dt>
            <dd>
              {operation.finishedAt ? (
                brief(Date.parse(operation.finishedAt) - Date.parse(operation.createdAt))
              ) : (
                <Since at={operation.createdAt} />
              )}
            </dd>
            {operation.requestedBy && (
              <>
                <dt>By</dt>
                <dd class="mono">{operation.requestedBy.name}</dd>
              </>
            )}
            {operation.error && (
              <>
                <dt>Why it failed</dt>
                <dd>
                  {operation.error.message} <code>{operation.error.code}</code>
                </dd>
              </>
            )}
          </dl>
          {operation.attempts.length > 0 && (
            <table class="grid-table cards-on-phone">
              <caption class="hidden">Attempts</caption>
              <thead>
                <tr>
                  <th scope="col">Region</th>
                  <th scope="col">Paid</th>
                  <th scope="col">Per hour</th>
                  <th scope="col">Outcome</th>
                  <th scope="col">Why</th>
                  <th scope="col" class="right">
                    Took
                  </th>
                </tr>
              </thead>
              <tbody>
                {operation.attempts.map((attempt) => (
                  <tr key={attempt.number}>
                    <td data-label="Region">{attempt.region}</td>
                    <td data-label="Paid">{attempt.billingMode ? words(attempt.billingMode).toLowerCase() : "–"}</td>
                    <td data-label="Per hour" class="figures">
                      {money(attempt.pricePerHour)}
                    </td>
                    <td data-label="Outcome">
                      <Chip tone={ATTEMPTS[attempt.status]}>{words(attempt.status)}</Chip>
                    </td>
                    <td data-label="Why">
                      {attempt.reasonMessage ?? "–"} {attempt.reasonCode && <code>{attempt.reasonCode}</code>}
                    </td>
                    <td data-label="Took" class="right">
                      {attempt.finishedAt ? brief(Date.parse(attempt.finishedAt) - Date.parse(attempt.createdAt)) : "–"}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </section>
      ))}
    </div>
  );
}
