// The instance’s webhook deliveries and their responses.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import { subscribe } from "../api/subscriptions.ts";
import { Deliveries as DeliveriesQuery, type DeliveryRow, type DeliveryStatus, RedeliverWebhook, WatchJobStats } from "../generated/api.ts";
import { moment, words } from "../format.ts";
import type { Detail } from "../live/instance.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may } from "../live/viewer.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { Empty, Problem } from "../ui/parts.tsx";

const TONES: Record<DeliveryStatus, Tone> = { PENDING: "active", DELIVERED: "good", FAILED: "bad" };

export function Deliveries({ instance, lastEventId }: { instance: Detail; lastEventId: string | undefined }) {
  const [deliveries, setDeliveries] = useState<readonly DeliveryRow[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [revision, setRevision] = useState(0);

  // Deliveries cause no events. Each attempt is a job, though, so a change of the job statistics reloads them.
  useEffect(
    () =>
      subscribe(WatchJobStats, () => ({}), {
        next: () => setRevision((old) => old + 1),
        onError: (_code, message) => setProblem(message),
      }),
    [],
  );

  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setDeliveries((await request(DeliveriesQuery, { id: instance.id }, abort.signal)).webhookDeliveries.nodes);
        setProblem(null);
      } catch (error) {
        if (!abort.signal.aborted) setProblem(messageOf(error));
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [instance.id, lastEventId, revision]);

  if (problem) return <Problem>{problem}</Problem>;
  if (!deliveries) return <p class="muted">Loading …</p>;
  if (deliveries.length === 0) {
    return (
      <Empty icon="pulse" title={instance.webhook ? "No deliveries yet" : "No webhook"}>
        <p>
          {instance.webhook ? (
            "The next event of the instance is sent to its webhook, and listed here."
          ) : (
            <>
              <a href={`#/instances/${instance.id}/edit`}>Set a webhook</a> to have the events of the instance sent to a program, signed.
            </>
          )}
        </p>
      </Empty>
    );
  }
  return (
    <div class="panel">
      <DeliveryTable deliveries={deliveries} hasReceivers />
    </div>
  );
}

// An instance has its own webhook and those of the project.
export function DeliveryTable({ deliveries, hasReceivers = false }: { deliveries: readonly DeliveryRow[]; hasReceivers?: boolean }) {
  return (
    <table class="grid-table cards-on-phone">
      <caption class="hidden">Deliveries, newest first</caption>
      <thead>
        <tr>
          <th scope="col">Event</th>
          {hasReceivers && <th scope="col">Receiver</th>}
          <th scope="col">Status</th>
          <th scope="col">Attempts</th>
          <th scope="col">Last response</th>
          <th scope="col">Created</th>
          <th scope="col">
            <span class="hidden">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {deliveries.map((delivery) => (
          <Line key={delivery.id} delivery={delivery} hasReceiver={hasReceivers} />
        ))}
      </tbody>
    </table>
  );
}

function Line({ delivery, hasReceiver }: { delivery: DeliveryRow; hasReceiver: boolean }) {
  const last = delivery.attempts.at(-1);
  const redeliver = () =>
    runMutation(async () => (await requestWithRetry(RedeliverWebhook, { input: { id: delivery.id } })).redeliverWebhook.errors, { rejected: "Redelivery rejected" });
  return (
    <tr>
      <td data-label="Event">
        <code>{delivery.eventType}</code>
      </td>
      {hasReceiver && (
        <td data-label="Receiver">
          <span class="mono wrap">{delivery.url}</span>
        </td>
      )}
      <td data-label="Status">
        <Chip tone={TONES[delivery.status]}>{words(delivery.status)}</Chip>
      </td>
      <td data-label="Attempts" class="figures">
        {delivery.attemptCount}
      </td>
      <td data-label="Last response">{last ? (last.httpStatus ?? last.message ?? "–") : "–"}</td>
      <td data-label="Created" class="figures">
        {moment(delivery.createdAt)}
      </td>
      <td class="right">
        {delivery.status !== "PENDING" && may("OPERATOR") && (
          <button type="button" class="button small" onClick={redeliver}>
            Redeliver
          </button>
        )}
      </td>
    </tr>
  );
}
