// Registry credentials and private networks.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import {
  CreateNetwork, CreateRegistryAuth, DeleteNetwork, DeleteRegistryAuth, Networks as NetworksQuery, type NetworksResult,
  RegistryAuths, type RegistryAuthsResult, UpdateNetwork,
} from "../generated/api.ts";
import { words } from "../format.ts";
import { useLoaded, useReloadWhile } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { type Column, ObjectForm, ObjectList } from "../ui/objects.tsx";
import { Since } from "../ui/since.tsx";

const CREDENTIALS: readonly Column<RegistryAuthsResult["registryAuths"][number]>[] = [
  {
    title: "Registry",
    show: (auth) => (
      <>
        {auth.name}
        <br />
        <span class="mono muted">{auth.id}</span>
      </>
    ),
  },
  { title: "User", show: (auth) => auth.username },
];

export function Registries() {
  const { data, problem, reload } = useLoaded(RegistryAuths, {});
  const isAllowed = may("OPERATOR");
  return (
    <div class={isAllowed ? "columns" : "stack"}>
      <ObjectList
        title="Registry credentials"
        icon="key"
        items={data?.registryAuths ?? null}
        problem={problem}
        columns={CREDENTIALS}
        nameOf={(auth) => auth.name}
        empty={<p>A credential lets creates, templates and upgrades use images of a private registry.{isAllowed && " Store one with the form, then choose it there."}</p>}
        removal={
          isAllowed
            ? {
                verb: "Delete",
                warning: "Instances that name it can no longer pull their image.",
                run: async (id) => (await requestWithRetry(DeleteRegistryAuth, { input: { id } })).deleteRegistryAuth.errors,
              }
            : undefined
        }
        reload={reload}
      />
      {isAllowed && (
        <ObjectForm
          title="New credential"
          action="Store credential"
          succeeded="Credential stored"
          inputs={[
            { name: "name", label: "Registry", placeholder: "registry.example.com" },
            { name: "username", label: "User" },
            { name: "password", label: "Password or token", hint: "passed on to the provider, stored nowhere else", isSecret: true },
          ]}
          submit={async ({ name = "", username = "", password = "" }, idempotencyKey) => {
            const input = { name, username, password, idempotencyKey };
            return (await requestWithRetry(CreateRegistryAuth, { input })).createRegistryAuth.errors;
          }}
          done={reload}
        />
      )}
    </div>
  );
}

type Network = NetworksResult["networks"]["nodes"][number];

const NETWORKS: readonly Column<Network>[] = [
  { title: "Name", show: (network) => network.name },
  {
    title: "Region",
    isShort: true,
    show: (network) => (
      <>
        {network.region ?? "–"}
        <br />
        <span class="mono muted">{network.segment}</span>
      </>
    ),
  },
  {
    title: "Status",
    show: (network) => <Chip tone={network.error ? "bad" : network.status === "READY" ? "good" : "active"}>{network.error ?? words(network.status)}</Chip>,
  },
  { title: "Age", isShort: true, show: (network) => (network.createdAt ? <Since at={network.createdAt} /> : "–") },
];

const NETWORK_NAME = { name: "name", label: "Name", hint: "1 to 30 characters" };

export function Networks() {
  const { data, problem, reload } = useLoaded(NetworksQuery, {});
  useReloadWhile(data?.networks.nodes.some((network) => network.status === "CREATING"), reload);
  const [editing, setEditing] = useState<Network | null>(null);
  const regions = (data?.regions ?? []).filter((region) => region.supportsNetworks);
  const isAllowed = may("OPERATOR");
  return (
    <div class={isAllowed ? "columns" : "stack"}>
      <ObjectList
        title="Private networks"
        icon="migrate"
        items={data?.networks.nodes ?? null}
        problem={problem}
        columns={NETWORKS}
        nameOf={(network) => network.name}
        empty={<p>Instances of one region that are created in a network reach each other directly.{isAllowed && " Create one with the form, then choose it when you create an instance."}</p>}
        removal={
          isAllowed
            ? {
                verb: "Delete",
                warning: "Refused while instances are in it.",
                run: async (id) => (await requestWithRetry(DeleteNetwork, { input: { id } })).deleteNetwork.errors,
              }
            : undefined
        }
        edit={isAllowed ? setEditing : undefined}
        reload={reload}
      />
      {isAllowed && editing && (
        <ObjectForm
          key={editing.id}
          title={`Rename ${editing.name}`}
          action="Save network"
          succeeded="Network renamed"
          inputs={[NETWORK_NAME]}
          initial={{ name: editing.name }}
          submit={async ({ name = "" }) => (await requestWithRetry(UpdateNetwork, { input: { id: editing.id, name } })).updateNetwork.errors}
          done={() => {
            setEditing(null);
            reload();
          }}
          cancel={() => setEditing(null)}
        />
      )}
      {isAllowed && !editing && (
        <ObjectForm
          title="New network"
          action="Create network"
          succeeded="Network created"
          inputs={[
            NETWORK_NAME,
            {
              name: "region",
              label: "Region",
              options: regions.map((region) => ({ value: region.code, text: region.place ? `${region.code}, ${region.place}` : region.code })),
            },
          ]}
          submit={async ({ name = "", region = "" }, idempotencyKey) =>
            (await requestWithRetry(CreateNetwork, { input: { name, region, idempotencyKey } })).createNetwork.errors
          }
          done={reload}
        />
      )}
    </div>
  );
}
