// Images: fetched to a region in advance, and saved from instances.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import {
  CancelProviderJob, DeletePrewarm, PrewarmImage, Prewarms as PrewarmsQuery, type PrewarmsResult, type PrewarmStatus,
  ProviderJobs, type ProviderJobsResult, type ProviderJobStatus, SaveImage, UpdatePrewarm,
} from "../generated/api.ts";
import { moment, words } from "../format.ts";
import { useCredentials } from "../live/credentials.ts";
import { useLoaded, useReloadWhile } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { Chip, type Tone } from "../ui/chip.tsx";
import { type Column, ObjectForm, ObjectList } from "../ui/objects.tsx";

const PREWARM_TONES: Record<PrewarmStatus, Tone> = { PENDING: "active", RUNNING: "active", SUCCEEDED: "good", FAILED: "bad", OTHER: "off" };

type Task = PrewarmsResult["prewarms"]["nodes"][number];

const PREWARMS: readonly Column<Task>[] = [
  { title: "Image", show: (task) => <span class="mono">{task.image}</span> },
  { title: "Region", isShort: true, show: (task) => task.region ?? "–" },
  { title: "Status", show: (task) => <Chip tone={PREWARM_TONES[task.status]}>{words(task.status)}</Chip> },
  { title: "Note", show: (task) => task.note || "–" },
];

const NOTE = { name: "note", label: "Note", isOptional: true };

export function Prewarms() {
  const { data, problem, reload } = useLoaded(PrewarmsQuery, {});
  useReloadWhile(data?.prewarms.nodes.some((task) => PREWARM_TONES[task.status] === "active"), reload);
  const [editing, setEditing] = useState<Task | null>(null);
  const quota = data?.prewarmQuota;
  const products = [...new Set((data?.products ?? []).map((product) => product.name))].sort();
  const isAllowed = may("OPERATOR");
  return (
    <div class={isAllowed ? "columns" : "stack"}>
      <ObjectList
        title="Prewarmed images"
        icon="down"
        items={data?.prewarms.nodes ?? null}
        problem={problem}
        columns={PREWARMS}
        nameOf={(task) => task.image}
        empty={<p>An image that is on the nodes of a region already starts without being pulled.{isAllowed && " Fetch one with the form."}</p>}
        aside={quota?.limit != null && <span class="muted">{quota.used ?? 0} of {quota.limit} used</span>}
        removal={
          isAllowed
            ? {
                verb: "Delete",
                warning: "It is removed from the nodes; instances that run stay as they are.",
                run: async (id) => (await requestWithRetry(DeletePrewarm, { input: { id } })).deletePrewarm.errors,
              }
            : undefined
        }
        edit={isAllowed ? setEditing : undefined}
        reload={reload}
      />
      {isAllowed && editing && (
        <ObjectForm
          key={editing.id}
          title={`Note of ${editing.image}`}
          action="Save note"
          succeeded="Note saved"
          inputs={[NOTE]}
          initial={{ note: editing.note ?? "" }}
          submit={async ({ note = "" }) => (await requestWithRetry(UpdatePrewarm, { input: { id: editing.id, note } })).updatePrewarm.errors}
          done={() => {
            setEditing(null);
            reload();
          }}
          cancel={() => setEditing(null)}
        />
      )}
      {isAllowed && !editing && (
        <ObjectForm
          title="Prewarm an image"
          action="Prewarm"
          succeeded="The image is being fetched"
          inputs={[
            { name: "image", label: "Image", placeholder: "nginx:1.27" },
            { name: "region", label: "Region", options: (data?.regions ?? []).map((region) => ({ value: region.code, text: region.code })) },
            { name: "productNames", label: "Product", options: products.map((name) => ({ value: name, text: name })) },
            NOTE,
          ]}
          submit={async ({ image = "", region = "", productNames = "", note }, idempotencyKey) => {
            const input = { image, region, productNames: [productNames], note: note || null, idempotencyKey };
            return (await requestWithRetry(PrewarmImage, { input })).prewarmImage.errors;
          }}
          done={reload}
        />
      )}
    </div>
  );
}

type Job = ProviderJobsResult["providerJobs"]["nodes"][number];

const JOB_TONES: Record<ProviderJobStatus, Tone> = {
  PULLING: "active", RUNNING: "active", SUCCEEDED: "good", FAILED: "bad", INTERRUPTED: "off", OTHER: "off",
};

const JOBS: readonly Column<Job>[] = [
  { title: "Instance", show: (job) => (job.instance ? <a href={`#/instances/${encodeURIComponent(job.instance.id)}`}>{job.instance.name}</a> : "–") },
  { title: "Job", show: (job) => words(job.kind) },
  { title: "Status", show: (job) => <Chip tone={JOB_TONES[job.status]}>{words(job.status)}</Chip> },
  { title: "Error", show: (job) => job.error || "–" },
  { title: "Started", isShort: true, show: (job) => (job.createdAt ? moment(job.createdAt) : "–") },
];

export function Images() {
  const { data, problem, reload } = useLoaded(ProviderJobs, {});
  useReloadWhile(data?.providerJobs.nodes.some((job) => JOB_TONES[job.status] === "active"), reload);
  const credentials = useCredentials("None");
  const exited = data?.instances.nodes ?? [];
  const isAllowed = may("OPERATOR");
  return (
    <div class={isAllowed ? "columns" : "stack"}>
      <ObjectList
        title="Jobs of the provider"
        icon="copy"
        items={data?.providerJobs.nodes ?? null}
        problem={problem}
        columns={JOBS}
        nameOf={(job) => job.instance?.name ?? job.id}
        empty={<p>Images that are saved and machines that are migrated are listed here.{isAllowed && " Stop an instance, then save it with the form."}</p>}
        removal={
          isAllowed
            ? {
                verb: "Interrupt",
                warning: "The image is not saved, and its operation fails.",
                isPossible: (job) => job.kind === "SAVE_IMAGE" && (job.status === "RUNNING" || job.status === "PULLING"),
                run: async (id) => (await requestWithRetry(CancelProviderJob, { input: { id } })).cancelProviderJob.errors,
              }
            : undefined
        }
        reload={reload}
      />
      {isAllowed && (
        <ObjectForm
          title="Save an instance as an image"
          action="Save image"
          succeeded="The image is being saved"
          inputs={[
            {
              name: "id",
              label: "Instance",
              hint: exited.length ? "only exited ones can be saved" : "no instance has exited; stop one first",
              options: exited.map((instance) => ({ value: instance.id, text: instance.name })),
            },
            { name: "image", label: "Image to push", placeholder: "registry.example.com/me/work:1" },
            { name: "registryAuthId", label: "Registry credential", hint: "of the registry that the image is pushed to", options: credentials, isOptional: true },
          ]}
          submit={async ({ id = "", image = "", registryAuthId }, idempotencyKey) =>
            (await requestWithRetry(SaveImage, { input: { id, image, registryAuthId: registryAuthId || null, idempotencyKey } })).saveImage.errors
          }
          done={reload}
        />
      )}
    </div>
  );
}
