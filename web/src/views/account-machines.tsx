// Machines of the provider account that no instance has: they are billed, and can be adopted.
import { requestWithRetry } from "../api/request.ts";
import { AdoptInstance, UnlinkedMachines, type UnlinkedMachinesResult } from "../generated/api.ts";
import { money } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { runMutation } from "../live/run-mutation.ts";
import { go } from "../route.ts";
import { confirm } from "../ui/confirm.tsx";
import { type Column, ObjectList } from "../ui/objects.tsx";

type Machine = UnlinkedMachinesResult["fleet"]["items"]["nodes"][number] & { readonly id: string };

export function Machines() {
  const { data, problem, reload } = useLoaded(UnlinkedMachines, {});
  const machines = data?.fleet.items.nodes.flatMap((item) => (item.source === "NOVITA" && item.novitaId ? [{ ...item, id: item.novitaId }] : []));
  const adopt = async (machine: Machine) => {
    const isConfirmed = await confirm({
      title: `Adopt ${machine.name}?`,
      body: "It becomes an instance of this project. Nothing changes at the provider.",
      action: "Adopt",
    });
    if (!isConfirmed) return;
    const input = { novitaId: machine.id };
    await runMutation(
      async () => {
        const { instance, errors } = (await requestWithRetry(AdoptInstance, { input })).adoptInstance;
        if (instance) go(`#/instances/${instance.id}`);
        return errors;
      },
      { succeeded: `${machine.name} adopted`, rejected: `${machine.name} was not adopted` },
    );
    reload();
  };
  const columns: readonly Column<Machine>[] = [
    { title: "Name", show: (machine) => machine.name },
    { title: "Novita ID", show: (machine) => <span class="mono">{machine.id}</span> },
    { title: "Status", show: (machine) => machine.novitaStatus ?? "–" },
    { title: "Product", show: (machine) => machine.productName ?? "–" },
    { title: "Region", show: (machine) => machine.region ?? "–", isShort: true },
    { title: "Per hour", show: (machine) => money(machine.pricePerHour), isShort: true },
    {
      title: "Adopt",
      show: (machine) => (
        <button type="button" class="button small" aria-label={`Adopt ${machine.name}`} onClick={() => adopt(machine)}>
          Adopt
        </button>
      ),
    },
  ];
  return (
    <ObjectList
      title="Machines without an instance"
      icon="fleet"
      items={machines ?? null}
      problem={problem ?? data?.fleet.problem?.message ?? null}
      columns={columns}
      nameOf={(machine) => machine.name}
      empty={<p>Every machine of the account belongs to an instance. One that was created in the provider’s console would appear here.</p>}
      reload={reload}
    />
  );
}
