// Templates of the account, and those that the provider offers.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import {
  CreateTemplate, DeleteTemplate, Templates as TemplatesQuery, type TemplateChannel, type TemplatesResult, UpdateTemplate, type UpdateTemplateInput,
} from "../generated/api.ts";
import { readPairs, readPorts, wholeNumber } from "../live/draft.ts";
import { useLoaded } from "../live/loaded.ts";
import { may } from "../live/viewer.ts";
import { type Column, type Input, ObjectForm, ObjectList } from "../ui/objects.tsx";
import { Segments } from "../ui/parts.tsx";

type Template = TemplatesResult["templates"]["nodes"][number];
type Shown = Extract<TemplateChannel, "PRIVATE" | "OFFICIAL" | "COMMUNITY">;

const COLUMNS: readonly Column<Template>[] = [
  {
    title: "Name",
    show: (template) => (
      <>
        {template.name}
        <br />
        <span class="mono muted">{template.id}</span>
      </>
    ),
  },
  { title: "Image", show: (template) => <span class="mono">{template.image || "–"}</span> },
  { title: "Ports", show: (template) => template.ports.map((each) => each.port).join(", ") || "–" },
  { title: "Disk", isShort: true, show: (template) => (template.rootfsSizeGb === null ? "–" : `${template.rootfsSizeGb} GB`) },
];

export function Templates() {
  const [channel, setChannel] = useState<Shown>("PRIVATE");
  const [editing, setEditing] = useState<Template | null>(null);
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
        edit={isOwn ? setEditing : undefined}
        reload={reload}
      />
      {isOwn && (editing ? <EditTemplate key={editing.id} template={editing} close={() => setEditing(null)} reload={reload} /> : <NewTemplate reload={reload} />)}
    </div>
  );
}

const INPUTS: readonly Input[] = [
  { name: "name", label: "Name", placeholder: "serving" },
  { name: "image", label: "Image", placeholder: "nginx:1.27" },
  { name: "command", label: "Start command", hint: "empty: the image’s", isOptional: true },
  { name: "ports", label: "Ports", hint: "e.g. 80, 22/tcp; the default type is http", placeholder: "80, 8080", isOptional: true },
  { name: "rootfsSizeGb", label: "Root disk, GB", hint: "empty: the provider’s default", isOptional: true },
];
const ENVIRONMENT: Input = { name: "env", label: "Environment", hint: "one NAME=value per line", isOptional: true, isLong: true };

function NewTemplate({ reload }: { reload: () => void }) {
  return (
    <ObjectForm
      title="New template"
      action="Create template"
      succeeded="Template created"
      inputs={[...INPUTS, ENVIRONMENT]}
      submit={async ({ name = "", image = "", ...others }, idempotencyKey) => {
        const input = { ...changesOf({}, others), name, image, idempotencyKey };
        return (await requestWithRetry(CreateTemplate, { input })).createTemplate.errors;
      }}
      done={reload}
    />
  );
}

// Only what was changed is sent: the form has no field for the rest, and secret values can’t be read back.
function EditTemplate({ template, close, reload }: { template: Template; close: () => void; reload: () => void }) {
  const before = valuesOf(template);
  const secrets = template.env.filter((each) => each.secret).map((each) => each.key);
  const environment = secrets.length > 0 ? [] : [ENVIRONMENT];
  return (
    <ObjectForm
      title={`Edit ${template.name}`}
      action="Save template"
      succeeded="Template changed"
      inputs={[...INPUTS, ...environment]}
      initial={before}
      note={secrets.length > 0 ? `Its environment can’t be edited here, because the values of ${secrets.join(", ")} are secret.` : undefined}
      submit={async (values) => {
        const changes = changesOf(before, values);
        if (Object.keys(changes).length === 0) return [];
        return (await requestWithRetry(UpdateTemplate, { input: { id: template.id, ...changes } })).updateTemplate.errors;
      }}
      done={() => {
        close();
        reload();
      }}
      cancel={close}
    />
  );
}

function valuesOf(template: Template): Record<string, string> {
  return {
    name: template.name,
    image: template.image,
    command: template.command ?? "",
    ports: template.ports.map((each) => (each.type === "http" ? String(each.port) : `${each.port}/${each.type}`)).join(", "),
    rootfsSizeGb: template.rootfsSizeGb === null ? "" : String(template.rootfsSizeGb),
    env: template.env.map(({ key, value }) => `${key}=${value ?? ""}`).join("\n"),
  };
}

type Changes = Pick<UpdateTemplateInput, "name" | "image" | "command" | "ports" | "rootfsSizeGb" | "env">;

// A field that was emptied is sent empty, which removes its value; a disk has a size always.
function changesOf(before: Record<string, string>, now: Record<string, string>): Changes {
  const changed = (name: string) => now[name] !== undefined && now[name] !== (before[name] ?? "");
  return {
    ...(changed("name") && { name: now["name"] }),
    ...(changed("image") && { image: now["image"] }),
    ...(changed("command") && { command: now["command"] }),
    ...(changed("ports") && { ports: readPorts(now["ports"] ?? "") }),
    ...(changed("rootfsSizeGb") && now["rootfsSizeGb"] && { rootfsSizeGb: wholeNumber(now["rootfsSizeGb"]) ?? 0 }),
    ...(changed("env") && { env: readPairs(now["env"] ?? "") }),
  };
}
