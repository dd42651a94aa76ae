// A button that sends a test message to a webhook’s receiver, and shows what it answered.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { Delivery, type DeliveryRow, TestWebhook } from "../generated/api.ts";
import { explain } from "../format.ts";
import { Chip } from "../ui/chip.tsx";

const POLL = 500;

export function TestWebhookButton({ url }: { url: string }) {
  const [delivery, setDelivery] = useState<DeliveryRow | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isSending, setSending] = useState(false);
  const send = async () => {
    setSending(true);
    setProblem(null);
    setDelivery(null);
    try {
      const payload = (await request(TestWebhook, { input: { url } })).testWebhook;
      if (payload.errors[0]) setProblem(explain(payload.errors[0]));
      setDelivery(payload.delivery);
    } catch (error) {
      setProblem(messageOf(error));
    }
    setSending(false);
  };
  // Deliveries cause no events.
  const isOpen = delivery !== null && delivery.attemptCount === 0 && delivery.status === "PENDING";
  useEffect(() => {
    if (!isOpen || !delivery) return;
    const timer = setTimeout(async () => {
      const found = await request(Delivery, { id: delivery.id }).catch(() => null);
      setDelivery(found?.webhookDelivery ?? { ...delivery });
    }, POLL);
    return () => clearTimeout(timer);
  }, [delivery]);
  return (
    <>
      <button type="button" class="button small" aria-label={`Test webhook ${url}`} disabled={isSending || isOpen} onClick={send}>
        Test webhook
      </button>
      <span role="status">{problem ? <Chip tone="bad">{problem}</Chip> : delivery && <Outcome delivery={delivery} />}</span>
    </>
  );
}

function Outcome({ delivery }: { delivery: DeliveryRow }) {
  const last = delivery.attempts.at(-1);
  if (delivery.status === "DELIVERED") return <Chip tone="good">Delivered, HTTP {last?.httpStatus}</Chip>;
  if (!last) return <Chip tone="active">Sending …</Chip>;
  return <Chip tone="bad">{last.httpStatus ? `HTTP ${last.httpStatus}` : (last.message ?? last.errorCode ?? "Not delivered")}</Chip>;
}
