// The project’s alerts: what they wait for, and when they last fired.
import { requestWithRetry } from "../api/request.ts";
import { type AlertsResult, DeleteAlert } from "../generated/api.ts";
import { moment, money, words } from "../format.ts";
import type { Loaded } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { ObjectList } from "../ui/objects.tsx";
import { Since } from "../ui/since.tsx";

type Alert = AlertsResult["alerts"]["nodes"][number];

export function Alerts({ loaded }: { loaded: Loaded<AlertsResult> }) {
  return (
    <ObjectList<Alert>
      title="Alerts"
      icon="market"
      items={loaded.data?.alerts.nodes ?? null}
      problem={loaded.problem}
      nameOf={(alert) => `the alert for ${productsOf(alert)}`}
      columns={[
        { title: "Product", show: productsOf },
        { title: "Region", show: (alert) => alert.regions?.join(", ") ?? "any" },
        { title: "Billing", show: (alert) => alert.billingModes?.map(words).join(", ") ?? "any" },
        { title: "At most", show: (alert) => (alert.priceAtMost ? `${money(alert.priceAtMost, 2)}/h` : "any price"), isShort: true },
        { title: "Last fired", show: (alert) => (alert.lastFiredAt ? <><Since at={alert.lastFiredAt} /> ago</> : "not yet"), isShort: true },
        { title: "Ends", show: (alert) => (alert.expiresAt ? moment(alert.expiresAt) : "never"), isShort: true },
      ]}
      empty={<p>Open a price above and choose “Alert me”: an event is sent when it is in stock. Webhooks of the project can receive it.</p>}
      removal={
        may("OPERATOR")
          ? {
              verb: "Delete",
              warning: "It does not fire any more.",
              run: async (id) => (await requestWithRetry(DeleteAlert, { input: { id } })).deleteAlert.errors,
            }
          : undefined
      }
      reload={loaded.reload}
    />
  );
}

function productsOf(alert: Alert): string {
  return `${alert.productNames?.join(", ") ?? "any product"}${alert.gpuCount > 1 ? ` × ${alert.gpuCount}` : ""}`;
}
