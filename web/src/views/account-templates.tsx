// Templates of the account, and those that the provider offers.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import {
  CreateTemplate, DeleteTemplate, Templates as TemplatesQuery, type TemplateChannel, type TemplatesResult, type ToolInput, UpdateTemplate, type UpdateTemplateInput,
} from "../generated/api.ts";
import { type Option, useCredentials } from "../live/credentials.ts";
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
  const credentials = useCredentials("None: a public image");
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
        empty={<p>A template holds image, command, ports and disk, so that a create needs only its id.{isOwn && " Make one with the form."}</p>}
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
      {isOwn && (editing ? <EditTemplate key={editing.id} template={editing} credentials={credentials} close={() => setEditing(null)} reload={reload} /> : <NewTemplate credentials={credentials} reload={reload} />)}
    </div>
  );
}

const TOOLS = [
  { value: "", text: "None" },
  { value: "SSH", text: "SSH server" },
  { value: "JUPYTER", text: "Jupyter" },
  { value: "SSH JUPYTER", text: "SSH server and Jupyter" },
];

// A value of the edited template that can’t be chosen, such as the credential of another project, stays in the list.
function inputsOf(credentials: readonly Option[], before: Record<string, string> = {}): Input[] {
  const withOwn = (options: readonly Option[], own = "") => (options.some((each) => each.value === own) ? options : [...options, { value: own, text: own }]);
  return [
    { name: "name", label: "Name", placeholder: "serving" },
    { name: "image", label: "Image", placeholder: "nginx:1.27" },
    { name: "registryAuthId", label: "Registry credential", options: withOwn(credentials, before["registryAuthId"]), isOptional: true },
    { name: "entrypoint", label: "Entrypoint", hint: "empty: the image’s", isOptional: true },
    { name: "command", label: "Start command", hint: "empty: the image’s", isOptional: true },
    { name: "ports", label: "Ports", hint: "e.g. 80, 22/tcp; the default type is http", placeholder: "80, 8080", isOptional: true },
    { name: "tools", label: "Tools", options: withOwn(TOOLS, before["tools"]), isOptional: true },
    { name: "rootfsSizeGb", label: "Root disk, GB", hint: "empty: the provider’s default", isOptional: true },
    { name: "minCudaVersion", label: "Lowest CUDA version", hint: "e.g. 12.4; empty: any", isOptional: true },
  ];
}
const ENVIRONMENT: Input = { name: "env", label: "Environment", hint: "one NAME=value per line", isOptional: true, isLong: true };

function NewTemplate({ credentials, reload }: { credentials: readonly Option[]; reload: () => void }) {
  return (
    <ObjectForm
      title="New template"
      action="Create template"
      succeeded="Template created"
      inputs={[...inputsOf(credentials), ENVIRONMENT]}
      submit={async ({ name = "", image = "", ...others }, idempotencyKey) => {
        const input = { ...changesOf({}, others), name, image, idempotencyKey };
        return (await requestWithRetry(CreateTemplate, { input })).createTemplate.errors;
      }}
      done={reload}
    />
  );
}

// Only what was changed is sent: the form has no field for the rest, and secret values can’t be read back.
function EditTemplate({ template, credentials, close, reload }: { template: Template; credentials: readonly Option[]; close: () => void; reload: () => void }) {
  const before = valuesOf(template);
  const secrets = template.env.filter((each) => each.secret).map((each) => each.key);
  const environment = secrets.length > 0 ? [] : [ENVIRONMENT];
  return (
    <ObjectForm
      title={`Edit ${template.name}`}
      action="Save template"
      succeeded="Template changed"
      inputs={[...inputsOf(credentials, before), ...environment]}
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
    registryAuthId: template.registryAuthId ?? "",
    entrypoint: template.entrypoint ?? "",
    command: template.command ?? "",
    ports: template.ports.map((each) => (each.type === "http" ? String(each.port) : `${each.port}/${each.type}`)).join(", "),
    tools: template.tools.map((tool) => tool.name).sort(sshFirst).join(" "),
    minCudaVersion: template.minCudaVersion ?? "",
    rootfsSizeGb: template.rootfsSizeGb === null ? "" : String(template.rootfsSizeGb),
    env: template.env.map(({ key, value }) => `${key}=${value ?? ""}`).join("\n"),
  };
}

function sshFirst(one: string, other: string): number {
  return other.localeCompare(one);
}

type Changes = Pick<
  UpdateTemplateInput,
  "name" | "image" | "registryAuthId" | "entrypoint" | "command" | "ports" | "tools" | "rootfsSizeGb" | "minCudaVersion" | "env"
>;

// A field that was emptied is sent empty, which removes its value; a disk has a size always.
function changesOf(before: Record<string, string>, now: Record<string, string>): Changes {
  const changed = (name: string) => now[name] !== undefined && now[name] !== (before[name] ?? "");
  return {
    ...(changed("name") && { name: now["name"] }),
    ...(changed("image") && { image: now["image"] }),
    ...(changed("registryAuthId") && { registryAuthId: now["registryAuthId"] }),
    ...(changed("entrypoint") && { entrypoint: now["entrypoint"] }),
    ...(changed("command") && { command: now["command"] }),
    ...(changed("ports") && { ports: readPorts(now["ports"] ?? "") }),
    ...(changed("tools") && { tools: (now["tools"] ?? "").split(" ").filter(Boolean).map((name) => ({ name: name as ToolInput["name"] })) }),
    ...(changed("minCudaVersion") && { minCudaVersion: now["minCudaVersion"] }),
    ...(changed("rootfsSizeGb") && now["rootfsSizeGb"] && { rootfsSizeGb: wholeNumber(now["rootfsSizeGb"]) ?? 0 }),
    ...(changed("env") && { env: readPairs(now["env"] ?? "") }),
  };
}
