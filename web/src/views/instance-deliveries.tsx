// What was sent to its webhook, and what came back.
import { useEffect, useState } from "preact/hooks";
import { ask, insist, wordsOf } from "../api/request.ts";
import { watch } from "../api/live.ts";
import { Deliveries as Ask, type DeliveriesResult, type DeliveryStatus, RedeliverWebhook, WatchJobStats } from "../generated/api.ts";
import { moment, words } from "../format.ts";
import type { Detail } from "../live/story.ts";
import { told } from "../live/told.ts";
import { may } from "../live/viewer.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { Empty, Problem } from "../ui/parts.tsx";

type Delivery = DeliveriesResult["webhookDeliveries"]["nodes"][number];

const TONES: Record<DeliveryStatus, Tone> = { PENDING: "moving", DELIVERED: "good", FAILED: "bad" };

export function Deliveries({ instance, last }: { instance: Detail; last: string | undefined }) {
  const [found, setFound] = useState<readonly Delivery[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [news, setNews] = useState(0);

  // The log does not tell how deliveries go. The queue does: each attempt is a job, and its figures are pushed.
  useEffect(
    () =>
      watch(WatchJobStats, () => ({}), {
        next: () => setNews((old) => old + 1),
        refused: (_code, message) => setProblem(message),
      }),
    [],
  );

  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setFound((await ask(Ask, { id: instance.id }, abort.signal)).webhookDeliveries.nodes);
        setProblem(null);
      } catch (error) {
        if (!abort.signal.aborted) setProblem(wordsOf(error));
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [instance.id, last, news]);

  if (problem) return <Problem>{problem}</Problem>;
  if (!found) return <p class="muted">Reading …</p>;
  if (found.length === 0) {
    return (
      <Empty icon="pulse" title={instance.webhook ? "Nothing was sent yet" : "It has no webhook"}>
        <p>
          Give a <code>webhookUrl</code> when you create or start an instance, and every change of it is sent there, signed.
        </p>
      </Empty>
    );
  }
  return (
    <div class="panel">
      <table class="grid-table cards-on-phone">
        <caption class="hidden">Deliveries, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Event</th>
            <th scope="col">Status</th>
            <th scope="col">Attempts</th>
            <th scope="col">Last answer</th>
            <th scope="col">When</th>
            <th scope="col">
              <span class="hidden">Do</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {found.map((delivery) => (
            <Line key={delivery.id} delivery={delivery} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Line({ delivery }: { delivery: Delivery }) {
  const last = delivery.attempts.at(-1);
  const again = () =>
    told(async () => (await insist(RedeliverWebhook, { input: { id: delivery.id } })).redeliverWebhook.errors, { refused: "Not sent again" });
  return (
    <tr>
      <td data-label="Event">
        <code>{delivery.eventType}</code>
      </td>
      <td data-label="Status">
        <Chip tone={TONES[delivery.status]}>{words(delivery.status)}</Chip>
      </td>
      <td data-label="Attempts" class="figures">
        {delivery.attemptCount}
      </td>
      <td data-label="Last answer">{last ? (last.httpStatus ?? last.message ?? "–") : "–"}</td>
      <td data-label="When" class="figures">
        {moment(delivery.createdAt)}
      </td>
      <td class="right">
        {delivery.status !== "PENDING" && may("OPERATOR") && (
          <button type="button" class="button small" onClick={again}>
            Send again
          </button>
        )}
      </td>
    </tr>
  );
}
