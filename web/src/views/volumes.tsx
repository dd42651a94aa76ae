// Network volumes: which there are, what they cost, who has them; create, enlarge, delete and adopt.
import { useEffect, useState } from "preact/hooks";
import { messageOf, newIdempotencyKey, request, requestWithRetry } from "../api/request.ts";
import { connection, subscribe } from "../api/subscriptions.ts";
import {
  AdoptVolume, CreateVolume, DeleteVolume, UnlinkedVolumes, type UnlinkedVolumesResult, UpdateVolume, Volumes, type VolumesResult,
  type VolumeStatus, WatchVolumes,
} from "../generated/api.ts";
import { count, explain, money, words } from "../format.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may, runsServer } from "../live/viewer.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { confirm } from "../ui/confirm.tsx";
import { Icon } from "../ui/icons.tsx";
import { Empty, Field, Panel, Problem } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";

type Volume = VolumesResult["volumes"]["nodes"][number];
type Unlinked = UnlinkedVolumesResult["unlinkedVolumes"]["nodes"][number];

const TONES: Record<VolumeStatus, Tone> = { CREATING: "active", AVAILABLE: "good", DELETING: "warning", FAILED: "bad", OTHER: "off" };
const EVENTS = ["creating", "available", "changed", "deleting", "deleted", "failed"].map((each) => `volume.${each}`);
const SMALLEST_GB = 10;
const LARGEST_GB = 10_240;

export function VolumesView() {
  const [loaded, setLoaded] = useState<VolumesResult | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = () => {
    request(Volumes, {})
      .then((result) => {
        setLoaded(result);
        setProblem(null);
      })
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  // Again for every connection: what happened in between is not sent.
  const since = connection.value.phase === "live" ? connection.value.since : 0;
  useEffect(load, [since]);
  useEffect(() => subscribe(WatchVolumes, () => ({ types: EVENTS }), { next: load }), []);

  const total = loaded?.volumes.totalCount ?? 0;
  const shown = loaded?.volumes.nodes ?? [];
  return (
    <div class="view">
      <header class="view-head">
        <h1>Volumes</h1>
        {total > 0 && <span class="muted">{count(total, "volume")}, billed until they are deleted</span>}
      </header>
      {problem && <Problem retry={load}>{problem}</Problem>}
      {!loaded && !problem && <p class="muted">Loading …</p>}
      {loaded && total === 0 && (
        <Empty icon="volumes" title="No volumes yet">
          <p>
            A network volume is a disk in one region that outlives the instances that mount it.
            {may("OPERATOR") && " Create one below, then mount it when you create an instance."}
          </p>
        </Empty>
      )}
      {shown.length > 0 && <List volumes={shown} onChanged={load} />}
      {total > shown.length && <p class="muted">The newest {shown.length} are shown.</p>}
      {loaded && may("OPERATOR") && <NewVolume regions={loaded.regions} onCreated={load} />}
      {runsServer() && <UnlinkedPanel onAdopted={load} />}
    </div>
  );
}

function List({ volumes, onChanged }: { volumes: readonly Volume[]; onChanged: () => void }) {
  return (
    <Panel title="Volumes of this project">
      <table class="grid-table cards-on-phone volumes">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Status</th>
            <th scope="col">Region</th>
            <th scope="col" class="right">Size</th>
            <th scope="col" class="right">Price</th>
            <th scope="col">Used by</th>
            <th scope="col">Age</th>
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {volumes.map((volume) => (
            <Row key={volume.id} volume={volume} onChanged={onChanged} />
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function Row({ volume, onChanged }: { volume: Volume; onChanged: () => void }) {
  const [size, setSize] = useState<string | null>(null);
  const isAvailable = volume.status === "AVAILABLE";
  const grow = async (event: Event) => {
    event.preventDefault();
    const input = { id: volume.id, sizeGb: Number(size) };
    const isDone = await runMutation(async () => (await requestWithRetry(UpdateVolume, { input })).updateVolume.errors, {
      succeeded: `${volume.name} has ${size} GB`,
      rejected: "Volume not enlarged",
    });
    if (isDone) setSize(null);
    onChanged();
  };
  const remove = async () => {
    const isConfirmed = await confirm({
      title: `Delete ${volume.name}?`,
      body: `All data on its ${volume.sizeGb} GB is lost.`,
      action: "Delete",
      isDangerous: true,
      typed: volume.name,
    });
    if (!isConfirmed) return;
    const input = { id: volume.id };
    await runMutation(async () => (await requestWithRetry(DeleteVolume, { input })).deleteVolume.errors, { rejected: "Volume not deleted" });
    onChanged();
  };
  return (
    <tr>
      <td data-label="Name">{volume.name}</td>
      <td data-label="Status">
        <span>
          <Chip tone={TONES[volume.status]}>{words(volume.status)}</Chip>
          {volume.failure && <span class="muted"> {explain(volume.failure)}</span>}
        </span>
      </td>
      <td data-label="Region">{volume.region}</td>
      <td data-label="Size" class="right figures">
        {volume.sizeGb} GB
      </td>
      <td data-label="Price" class="right figures">
        {volume.pricePerHour ? `${money(volume.pricePerHour)}/h` : "–"}
      </td>
      <td data-label="Used by">
        <span>
          {volume.attachedTo.length === 0 && <span class="muted">no instance</span>}
          {volume.attachedTo.map((instance) => (
            <a key={instance.id} href={`#/instances/${instance.id}`}>
              {instance.name}
            </a>
          ))}
        </span>
      </td>
      <td data-label="Age">
        <Since at={volume.createdAt} />
      </td>
      <td class="right">
        {size !== null ? (
          <form class="grow" onSubmit={grow}>
            <label class="hidden" for={`size-${volume.id}`}>
              New size of {volume.name} in GB
            </label>
            <input
              id={`size-${volume.id}`}
              type="number"
              min={volume.sizeGb}
              max={LARGEST_GB}
              value={size}
              onInput={(event) => setSize(event.currentTarget.value)}
            />
            <button type="submit" class="button small">
              Save
            </button>
            <button type="button" class="button small" onClick={() => setSize(null)}>
              Cancel
            </button>
          </form>
        ) : (
          <span class="actions">
            <button
              type="button"
              class="button small"
              aria-label={`Enlarge ${volume.name}`}
              disabled={!isAvailable || !may("OPERATOR")}
              onClick={() => setSize(String(volume.sizeGb))}
            >
              Enlarge
            </button>
            <button
              type="button"
              class="button small danger"
              aria-label={`Delete ${volume.name}`}
              disabled={volume.status === "DELETING" || volume.attachedTo.length > 0 || !may("OPERATOR")}
              onClick={remove}
            >
              <Icon name="trash" size={16} /> Delete
            </button>
          </span>
        )}
      </td>
    </tr>
  );
}

function NewVolume({ regions, onCreated }: { regions: VolumesResult["regions"]; onCreated: () => void }) {
  const [name, setName] = useState("");
  const [region, setRegion] = useState("");
  const [size, setSize] = useState("100");
  const [errors, setErrors] = useState<Record<string, string>>({});
  // The same for every attempt of this volume, so that a lost response creates no second one.
  const [key, setKey] = useState(newIdempotencyKey);
  const offered = regions.filter((each) => each.supportsNetworkStorage);
  const submit = async (event: Event) => {
    event.preventDefault();
    const input = { name: name.trim(), region: region || (offered[0]?.code ?? ""), sizeGb: Number(size), idempotencyKey: key };
    try {
      const payload = (await requestWithRetry(CreateVolume, { input })).createVolume;
      setErrors(Object.fromEntries(payload.errors.map((error) => [error.path[1] ?? "name", explain(error)])));
      setKey(newIdempotencyKey());
      if (payload.errors.length > 0) return;
      setName("");
      onCreated();
    } catch (caught) {
      setErrors({ name: messageOf(caught) });
    }
  };
  return (
    <Panel title="New volume">
      <div class="body">
        <form class="inline-form" onSubmit={submit}>
          <Field label="Name" error={errors["name"]} hint="unique in the project">
            {(ids) => <input {...ids} value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" placeholder="models" />}
          </Field>
          <Field label="Region" error={errors["region"]} hint="its instances run there">
            {(ids) => (
              <select {...ids} value={region || offered[0]?.code} onChange={(event) => setRegion(event.currentTarget.value)}>
                {offered.map((each) => (
                  <option key={each.code} value={each.code}>
                    {each.code} {each.place}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label="Size in GB" error={errors["sizeGb"]} hint="it can grow, not shrink">
            {(ids) => (
              <input
                {...ids}
                type="number"
                min={SMALLEST_GB}
                max={LARGEST_GB}
                value={size}
                onInput={(event) => setSize(event.currentTarget.value)}
              />
            )}
          </Field>
          <button type="submit" class="button" aria-label="Create volume" disabled={!name.trim() || !size}>
            Create
          </button>
        </form>
      </div>
    </Panel>
  );
}

// Volumes of the provider account that no project has. They are read live, so only on request.
function UnlinkedPanel({ onAdopted }: { onAdopted: () => void }) {
  const [found, setFound] = useState<readonly Unlinked[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const look = () => {
    request(UnlinkedVolumes, {})
      .then((result) => {
        setFound(result.unlinkedVolumes.nodes);
        setProblem(null);
      })
      .catch((error: unknown) => setProblem(messageOf(error)));
  };
  const adopt = async (volume: Unlinked) => {
    const input = { novitaId: volume.novitaId };
    await runMutation(async () => (await requestWithRetry(AdoptVolume, { input })).adoptVolume.errors, {
      succeeded: `${volume.name} belongs to this project now`,
      rejected: "Volume not adopted",
    });
    look();
    onAdopted();
  };
  return (
    <Panel
      title="Volumes without a project"
      aside={
        <button type="button" class="button small" onClick={look}>
          <Icon name="search" size={16} /> Look at the provider
        </button>
      }
    >
      <div class="body">
        {problem && <Problem>{problem}</Problem>}
        {found === null && <p class="muted">The account may have volumes that were created elsewhere; they are billed, too.</p>}
        {found?.length === 0 && <p class="muted">The account has none.</p>}
        {found?.map((volume) => (
          <p key={volume.novitaId} class="unlinked">
            <span>
              {volume.name} <span class="muted">{volume.region}, {volume.sizeGb} GB</span>
            </span>
            <button type="button" class="button small" aria-label={`Adopt ${volume.name}`} onClick={() => adopt(volume)}>
              Adopt
            </button>
          </p>
        ))}
      </div>
    </Panel>
  );
}
