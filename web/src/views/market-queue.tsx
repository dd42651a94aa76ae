// Creates and starts of the project that wait for capacity, with their places.
import { useEffect } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { subscribe } from "../api/subscriptions.ts";
import { CancelOperation, Waits, type WaitsResult, WatchWaits } from "../generated/api.ts";
import { moment, words } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { ObjectList } from "../ui/objects.tsx";
import { Since } from "../ui/since.tsx";

type Waiting = NonNullable<ReturnType<typeof waiting>>;

const STARTED = ["wait.began", "wait.matched", "wait.returned", "wait.expired", "operation.finished"];

export function MarketQueue() {
  const loaded = useLoaded(Waits, {});
  const { data, problem, reload } = loaded;
  useEffect(() => subscribe(WatchWaits, () => ({ filter: { types: STARTED } }), { next: reload }), []);
  const items = data?.instances.nodes.flatMap((each) => waiting(each) ?? []) ?? null;
  items?.sort((one, other) => one.instance.productName.localeCompare(other.instance.productName, "en", { numeric: true }) || one.wait.position - other.wait.position);
  return (
    <ObjectList<Waiting>
      title="Waiting for capacity"
      icon="market"
      items={items}
      problem={problem}
      nameOf={({ instance }) => instance.name}
      columns={[
        { title: "Instance", show: ({ instance }) => <a href={`#/instances/${instance.id}`}>{instance.name}</a> },
        { title: "Product", show: ({ instance }) => `${instance.productName}${instance.gpuCount > 1 ? ` × ${instance.gpuCount}` : ""}` },
        { title: "Place", show: ({ wait }) => <span class="figures">{wait.position}</span>, isShort: true },
        { title: "Priority", show: ({ wait }) => <span class="figures">{wait.priority}</span>, isShort: true },
        { title: "Lacks", show: ({ wait }) => words(wait.blockedBy), isShort: true },
        { title: "Waits for", show: ({ wait }) => <Since at={wait.since} />, isShort: true },
        { title: "Until", show: ({ wait }) => moment(wait.until), isShort: true },
      ]}
      empty={<p>Choose “Create when available” at a price above: the instance is created when it is in stock.</p>}
      removal={
        may("OPERATOR")
          ? {
              verb: "Cancel",
              warning: "It does not wait any more; a create leaves no instance, a start leaves it stopped.",
              run: async (id) => (await requestWithRetry(CancelOperation, { input: { id } })).cancelOperation.errors,
            }
          : undefined
      }
      reload={reload}
    />
  );
}

function waiting(instance: WaitsResult["instances"]["nodes"][number]) {
  const operation = instance.openOperation;
  return operation?.wait ? { id: operation.id, instance, wait: operation.wait } : null;
}
