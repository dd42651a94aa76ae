// The instance’s operations, with the attempts of each and their errors.
import { brief, explain, moment, money, words } from "../format.ts";
import type { AttemptStatus, OperationStatus } from "../generated/api.ts";
import type { Detail, Entry } from "../live/instance.ts";
import { stepsOf } from "../live/phases.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { Since } from "../ui/since.tsx";
import { Steps } from "../ui/steps.tsx";

const TONES: Record<OperationStatus, Tone> = {
  QUEUED: "active",
  RUNNING: "active",
  SUCCEEDED: "good",
  FAILED: "bad",
  CANCELLED: "off",
  SUPERSEDED: "off",
};

const ATTEMPTS: Record<AttemptStatus, Tone> = {
  ASKING: "active",
  UNKNOWN: "warning",
  CREATED: "good",
  REJECTED: "bad",
  ABSENT: "off",
};

export function Operations({ instance, entries }: { instance: Detail; entries: readonly Entry[] }) {
  return (
    <div class="stack">
      {instance.operations.map((operation) => (
        <section key={operation.id} class="panel" aria-label={words(operation.kind)}>
          <header>
            <h2>{words(operation.kind)}</h2>
            <Chip tone={TONES[operation.status]}>{words(operation.status)}</Chip>
          </header>
          <div class="body">
            <Steps steps={stepsOf(operation, entries)} />
          </div>
          <dl class="facts body">
            <dt>Requested</dt>
            <dd>{moment(operation.createdAt)}</dd>
            <dt>{operation.finishedAt ? "Duration" : "Running for"}</dt>
            <dd>
              {operation.finishedAt ? (
                brief(Date.parse(operation.finishedAt) - Date.parse(operation.createdAt))
              ) : (
                <Since at={operation.createdAt} />
              )}
            </dd>
            {operation.requestedBy && (
              <>
                <dt>Requested by</dt>
                <dd class="mono">{operation.requestedBy.name}</dd>
              </>
            )}
            {operation.reason && (
              <>
                <dt>Begun by Pilotlight</dt>
                <dd>{words(operation.reason)}</dd>
              </>
            )}
            {operation.error && (
              <>
                <dt>Error</dt>
                <dd>
                  {explain(operation.error)} <code>{operation.error.code}</code>
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
                  <th scope="col">Billing</th>
                  <th scope="col">Price per hour</th>
                  <th scope="col">Status</th>
                  <th scope="col">Reason</th>
                  <th scope="col" class="right">
                    Duration
                  </th>
                </tr>
              </thead>
              <tbody>
                {operation.attempts.map((attempt) => (
                  <tr key={attempt.number}>
                    <td data-label="Region">{attempt.region}</td>
                    <td data-label="Billing">{attempt.billingMode ? words(attempt.billingMode).toLowerCase() : "–"}</td>
                    <td data-label="Price per hour" class="figures">
                      {money(attempt.pricePerHour)}
                    </td>
                    <td data-label="Status">
                      <Chip tone={ATTEMPTS[attempt.status]}>{words(attempt.status)}</Chip>
                    </td>
                    <td data-label="Reason">
                      <span>
                        {attempt.reasonMessage ?? "–"} {attempt.reasonCode && <code>{attempt.reasonCode}</code>}
                      </span>
                    </td>
                    <td data-label="Duration" class="right">
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
