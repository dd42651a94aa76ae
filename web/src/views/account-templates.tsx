// Templates of the account, and those that the provider offers.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { CreateTemplate, DeleteTemplate, Templates as TemplatesQuery, type TemplateChannel, type TemplatesResult } from "../generated/api.ts";
import { useLoaded } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { type Column, ObjectForm, ObjectList } from "../ui/objects.tsx";
import { Segments } from "../ui/parts.tsx";

type Template = TemplatesResult["templates"]["nodes"][number];
type Shown = Extract<TemplateChannel, "PRIVATE" | "OFFICIAL" | "COMMUNITY">;

const COLUMNS: readonly Column<Template>[] = [
  { title: "Name", show: (template) => template.name },
  { title: "Image", show: (template) => <span class="mono">{template.image || "–"}</span> },
  { title: "Ports", show: (template) => template.ports.map((each) => each.port).join(", ") || "–" },
  { title: "Disk", isShort: true, show: (template) => (template.rootfsSizeGb === null ? "–" : `${template.rootfsSizeGb} GB`) },
  { title: "Id", isShort: true, show: (template) => <span class="mono">{template.id}</span> },
];

export function Templates() {
  const [channel, setChannel] = useState<Shown>("PRIVATE");
  const { data, problem, reload } = useLoaded(TemplatesQuery, { channels: [channel] });
  const isOwn = channel === "PRIVATE" && may("OPERATOR");
  return (
    <div class={isOwn ? "columns" : "stack"}>
      <ObjectList
        title="Templates"
        icon="copy"
        items={data?.templates.nodes ?? null}
        problem={problem}
        columns={COLUMNS}
        nameOf={(template) => template.name}
        empty={<p>A template holds image, command, ports and disk, so that a create needs only its id.</p>}
        aside={
          <Segments
            label="Which templates"
            value={channel}
            options={[
              { value: "PRIVATE", text: "Private" },
              { value: "OFFICIAL", text: "Official" },
              { value: "COMMUNITY", text: "Community" },
            ]}
            onChange={setChannel}
          />
        }
        removal={
          isOwn
            ? {
                verb: "Delete",
                warning: "Instances that were created from it stay as they are.",
                run: async (id) => (await requestWithRetry(DeleteTemplate, { input: { id } })).deleteTemplate.errors,
              }
            : undefined
        }
        reload={reload}
      />
      {isOwn && (
        <ObjectForm
          title="New template"
          action="Create template"
          succeeded="Template created"
          inputs={[
            { name: "name", label: "Name", placeholder: "serving" },
            { name: "image", label: "Image", placeholder: "nginx:1.27" },
            { name: "command", label: "Start command", hint: "empty: the image’s", isOptional: true },
            { name: "ports", label: "HTTP ports", hint: "separated by commas", placeholder: "80, 8080", isOptional: true },
            { name: "rootfsSizeGb", label: "Root disk, GB", hint: "empty: the provider’s default", isOptional: true },
          ]}
          submit={async ({ name = "", image = "", command, ports = "", rootfsSizeGb }, idempotencyKey) => {
            const input = {
              name,
              image,
              command: command || null,
              ports: ports === "" ? null : ports.split(/[\s,]+/).map((port) => ({ port: Number(port) || 0 })),
              rootfsSizeGb: rootfsSizeGb ? Math.trunc(Number(rootfsSizeGb)) || 0 : null,
              idempotencyKey,
            };
            return (await requestWithRetry(CreateTemplate, { input })).createTemplate.errors;
          }}
          done={reload}
        />
      )}
    </div>
  );
}
