// Webhooks of the project: an ADMIN creates and deletes them here.
import { useEffect, useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { subscribe } from "../api/subscriptions.ts";
import { CreateWebhook, DeleteWebhook, WatchJobStats, WebhookDeliveries, Webhooks as WebhooksQuery, type WebhooksResult } from "../generated/api.ts";
import { moment } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { type Column, ObjectForm, ObjectList } from "../ui/objects.tsx";
import { Panel, Problem } from "../ui/parts.tsx";
import { TestWebhookButton } from "./webhook-test.tsx";
import { DeliveryTable } from "./instance-deliveries.tsx";

type Webhook = WebhooksResult["webhooks"]["nodes"][number];

export function Webhooks() {
  const { data, problem, reload } = useLoaded(WebhooksQuery, {});
  const [shown, setShown] = useState<Webhook | null>(null);
  const isAllowed = may("ADMIN");
  const columns: readonly Column<Webhook>[] = [
    {
      title: "Receiver",
      show: (webhook) => (
        <>
          <span class="mono">{webhook.url}</span>
          <small class="muted under">{webhook.types.join(", ")}</small>
        </>
      ),
    },
    {
      title: "Status",
      show: (webhook) =>
        webhook.disabledAt ? <Chip tone="off">Disabled {moment(webhook.disabledAt)}</Chip> : <Chip tone="good">Enabled</Chip>,
    },
    {
      title: "Deliveries",
      isShort: true,
      show: (webhook) => (
        <span class="buttons">
        <button
          type="button"
          class="button small"
          aria-pressed={shown?.id === webhook.id}
          aria-label={`Show deliveries to ${webhook.url}`}
          onClick={() => setShown((old) => (old?.id === webhook.id ? null : webhook))}
        >
          Show
        </button>
          {isAllowed && <TestWebhookButton url={webhook.url} />}
        </span>
      ),
    },
  ];
  return (
    <div class="stack">
      <div class={isAllowed ? "columns" : "stack"}>
        <ObjectList
          title="Webhooks of the project"
          icon="pulse"
          items={data?.webhooks.nodes ?? null}
          problem={problem}
          columns={columns}
          nameOf={(webhook) => webhook.url}
          empty={<p>A webhook gets every event of its types, of all instances and of the project, signed.</p>}
          removal={
            isAllowed
              ? {
                  verb: "Delete",
                  warning: "Messages that were not delivered yet are not sent.",
                  run: async (id) => {
                    const { errors } = (await requestWithRetry(DeleteWebhook, { input: { id } })).deleteWebhook;
                    if (errors.length === 0) setShown((old) => (old?.id === id ? null : old));
                    return errors;
                  },
                }
              : undefined
          }
          reload={reload}
        />
        {isAllowed && (
          <ObjectForm
            title="New webhook"
            action="Create webhook"
            succeeded="Webhook created"
            inputs={[
              { name: "url", label: "URL of the receiver", placeholder: "https://example.com/hook" },
              {
                name: "types",
                label: "Event types",
                hint: "separated by commas; docs/webhooks.md lists them",
                placeholder: "instance.ready, instance.failed, balance.low",
              },
            ]}
            submit={async ({ url = "", types = "" }, idempotencyKey) => {
              const input = { url, types: types.split(/[\s,]+/).filter(Boolean), idempotencyKey };
              return (await requestWithRetry(CreateWebhook, { input })).createWebhook.errors;
            }}
            done={reload}
          />
        )}
      </div>
      {shown && <Deliveries key={shown.id} webhook={shown} />}
    </div>
  );
}

function Deliveries({ webhook }: { webhook: Webhook }) {
  const { data, problem, reload } = useLoaded(WebhookDeliveries, { id: webhook.id });
  // Deliveries cause no events. Each attempt is a job, though, so a change of the job statistics reloads them.
  useEffect(() => subscribe(WatchJobStats, () => ({}), { next: reload }), []);
  const deliveries = data?.webhookDeliveries.nodes;
  return (
    <Panel title={`Deliveries to ${webhook.url}`}>
      {problem && <Problem retry={reload}>{problem}</Problem>}
      {deliveries && (deliveries.length > 0 ? <DeliveryTable deliveries={deliveries} /> : <p class="muted body">None yet.</p>)}
    </Panel>
  );
}
