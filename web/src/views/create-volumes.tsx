// The create form’s volumes: those of one region, each with the path at which it is mounted.
import type { Draft, Mount } from "../live/draft.ts";
import { Icon } from "../ui/icons.tsx";
import { Field } from "../ui/parts.tsx";
import type { Volume } from "./create-options.ts";

interface Props {
  readonly draft: Draft;
  readonly volumes: readonly Volume[];
  readonly region: string; // where it shall be created; "": anywhere
  readonly errorOf: (field: string) => string | undefined;
  readonly change: (part: Partial<Draft>) => void;
}

export function VolumesField({ draft, volumes, region, errorOf, change }: Props) {
  const mounts = draft.volumes;
  const replace = (index: number, mount: Mount) => change({ volumes: mounts.map((each, at) => (at === index ? mount : each)) });
  const next = volumes.find((volume) => obstacleTo(volume, draft, volumes, mounts.length, region) === null);
  return (
    <div class="mounts">
      {mounts.map((mount, index) => (
        <div key={index} class="mount">
          <Field label="Volume" error={errorOf(`volumes.${index}.id`)}>
            {(ids) => (
              <select {...ids} value={mount.id} onChange={(event) => replace(index, mountOf(volumes.find((each) => each.id === event.currentTarget.value)))}>
                {volumes.map((volume) => {
                  const obstacle = obstacleTo(volume, draft, volumes, index, region);
                  return (
                    <option key={volume.id} value={volume.id} disabled={obstacle !== null}>
                      {volume.name} · {volume.sizeGb} GB · {volume.region}
                      {obstacle && ` · ${obstacle}`}
                    </option>
                  );
                })}
              </select>
            )}
          </Field>
          <Field label="Mount path" error={errorOf(`volumes.${index}.mountPath`)}>
            {(ids) => (
              <input
                {...ids}
                value={mount.mountPath}
                onInput={(event) => replace(index, { ...mount, mountPath: event.currentTarget.value })}
                placeholder="/data"
                autocomplete="off"
                spellcheck={false}
              />
            )}
          </Field>
          <button
            type="button"
            class="icon-button"
            aria-label={`Remove volume ${index + 1}`}
            onClick={() => change({ volumes: mounts.filter((_, at) => at !== index) })}
          >
            <Icon name="cross" size={16} />
          </button>
        </div>
      ))}
      {errorOf("volumes") && (
        <p class="mark bad" role="alert">
          {errorOf("volumes")}
        </p>
      )}
      <p class="note">
        <button type="button" class="button small" disabled={!next} onClick={() => change({ volumes: [...mounts, mountOf(next)] })}>
          <Icon name="volumes" size={16} /> Add a volume
        </button>{" "}
        {words(draft, volumes, next, region)}
      </p>
    </div>
  );
}

// The region of the chosen volumes: an instance can only be created there.
export function regionOf(mounts: readonly Mount[], volumes: readonly Volume[]): string | null {
  return volumes.find((volume) => mounts.some((mount) => mount.id === volume.id))?.region ?? null;
}

// Why a volume can’t be chosen in this row; null if it can.
function obstacleTo(volume: Volume, draft: Draft, volumes: readonly Volume[], row: number, wanted: string): string | null {
  const others = draft.volumes.filter((_, index) => index !== row);
  const region = regionOf(others, volumes) ?? wanted;
  if (volume.status !== "AVAILABLE") return volume.status.toLowerCase();
  if (volume.attachedTo.length > 0) return `used by ${volume.attachedTo.map((each) => each.name).join(", ")}`;
  if (others.some((mount) => mount.id === volume.id)) return "chosen above";
  return region && volume.region !== region ? `not in ${region}` : null;
}

function mountOf(volume: Volume | undefined): Mount {
  return { id: volume?.id ?? "", mountPath: `/${(volume?.name ?? "").replace(/[^\w.-]+/g, "-")}` };
}

function words(draft: Draft, volumes: readonly Volume[], next: Volume | undefined, region: string) {
  if (volumes.length === 0) {
    return (
      <>
        A volume keeps data when the instance is gone. <a href="#/volumes">Create the first</a>
      </>
    );
  }
  if (next) return draft.volumes.length === 0 ? "It keeps its data when the instance is gone, and decides the region." : "";
  return draft.volumes.length > 0 ? "There is no other free volume in this region." : `No volume is free${region && ` in ${region}`}.`;
}
