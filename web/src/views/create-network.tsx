// The create form’s private network, which decides the region as volumes do.
import type { CreateObjectsResult } from "../generated/api.ts";
import { Field } from "../ui/parts.tsx";
import type { FieldProps } from "./create-machine.tsx";

type Network = CreateObjectsResult["networks"]["nodes"][number];

interface Props extends Omit<FieldProps, "text"> {
  readonly networks: readonly Network[] | undefined;
  readonly region: string | null; // that of the chosen volumes
}

export function NetworkField({ draft, networks, region, errorOf, change }: Props) {
  if (!networks?.length) return null; // most projects have none
  return (
    <Field label="Private network" hint="its instances reach each other; it decides the region" error={errorOf("networkId")}>
      {(ids) => (
        <select {...ids} value={draft.networkId} onChange={(event) => change({ networkId: event.currentTarget.value })}>
          <option value="">None</option>
          {networks.map((each) => {
            const obstacle = each.status !== "READY" ? each.status.toLowerCase() : region && each.region !== region ? `not in ${region}` : null;
            return (
              <option key={each.id} value={each.id} disabled={obstacle !== null}>
                {each.name} · {each.region}
                {obstacle && ` · ${obstacle}`}
              </option>
            );
          })}
        </select>
      )}
    </Field>
  );
}
