// The create form’s fields, and the inputs of quote and createInstance made from them.
import type {
  Billing, CreateInstanceInput, InstanceKind, InstanceToCopyResult, KeyValueInput, LifetimeInput, NoCapacityInput, PortInput, QuoteInput, ToolInput, VolumeMountInput,
} from "../generated/api.ts";
import { type Preset, presetInput } from "./lifetime.ts";
import { NO_RECOVERY, type RecoveryDraft, recoveryDraft, recoveryInput } from "./recovery.ts";

export type Mount = Readonly<VolumeMountInput>;

export interface Draft {
  readonly name: string;
  readonly kind: InstanceKind; // that of the product
  readonly productName: string;
  readonly gpuCount: string;
  readonly source: "template" | "image";
  readonly templateId: string;
  readonly image: string;
  readonly registryAuthId: string;
  readonly ports: string;
  readonly billing: Billing;
  readonly region: string;
  readonly isOnlyRegion: boolean; // else others are tried next
  readonly maxPrice: string;
  readonly rootfsSizeGb: string;
  readonly command: string;
  readonly entrypoint: string;
  readonly tools: readonly ToolInput[];
  readonly minCudaVersion: string;
  readonly networkId: string;
  readonly env: string;
  readonly labels: string;
  readonly webhookUrl: string;
  readonly healthPath: string;
  readonly lifetime: Preset | "same";
  readonly recovery: RecoveryDraft;
  // How many seconds it waits for capacity, and with which priority in the project; "": it fails without capacity.
  readonly wait: string;
  readonly priority: string;
  readonly volumes: readonly Mount[];
  // Of the instance that is copied: what the form has no field for.
  readonly copied: Copied;
}

export interface Copied extends Pick<QuoteInput, "readyTimeout"> {
  readonly lifetime?: LifetimeInput;
}

export type TextField = Exclude<keyof Draft, "kind" | "source" | "billing" | "isOnlyRegion" | "tools" | "lifetime" | "recovery" | "volumes" | "copied">;

export const BLANK: Draft = {
  name: "",
  kind: "GPU",
  productName: "",
  gpuCount: "1",
  source: "template",
  templateId: "",
  image: "",
  registryAuthId: "",
  ports: "",
  billing: "SPOT_THEN_ON_DEMAND",
  region: "",
  isOnlyRegion: false,
  maxPrice: "",
  rootfsSizeGb: "",
  command: "",
  entrypoint: "",
  tools: [],
  minCudaVersion: "",
  networkId: "",
  env: "",
  labels: "",
  webhookUrl: "",
  healthPath: "",
  lifetime: "",
  recovery: NO_RECOVERY,
  wait: "",
  priority: "",
  volumes: [],
  copied: {},
};

export type Original = NonNullable<InstanceToCopyResult["instance"]>;

// “Create one like this”: everything but secrets, which the server does not give out, and a deadline that has passed.
export function draftOf(original: Original): Draft {
  const { lifetime } = original;
  const hasLimit = lifetime !== null && (lifetime.deadline === null || Date.parse(lifetime.deadline) > Date.now());
  return {
    ...BLANK,
    name: nextName(original.name),
    kind: original.kind === "CPU" ? "CPU" : "GPU",
    productName: original.productName,
    gpuCount: String(Math.max(1, original.gpuCount)),
    source: original.templateId ? "template" : "image",
    templateId: original.templateId ?? "",
    image: original.image,
    ports: original.ports.map((port) => `${port.port}/${port.type}`).join(", "),
    billing: original.billing,
    region: original.region ?? original.regions[0] ?? "",
    maxPrice: original.maxHourlyPrice ? String(original.maxHourlyPrice.amountMicros / 1_000_000) : "",
    rootfsSizeGb: String(original.rootfsSizeGb),
    command: original.command ?? "",
    entrypoint: original.entrypoint ?? "",
    tools: original.tools.filter((tool) => tool.name !== "OTHER"),
    minCudaVersion: original.minCudaVersion ?? "",
    env: original.env.flatMap(({ key, value, secret }) => (secret || value === null ? [] : [`${key}=${value}`])).join("\n"),
    labels: original.labels.map(({ key, value }) => `${key}=${value}`).join("\n"),
    webhookUrl: original.webhook?.url ?? "",
    lifetime: hasLimit ? "same" : "",
    recovery: recoveryDraft(original.recovery),
    copied: {
      ...(original.readyTimeout && { readyTimeout: original.readyTimeout }),
      ...(hasLimit && { lifetime }),
    },
  };
}

// trainer -> trainer-2 -> trainer-3: names are unique.
export function nextName(name: string): string {
  const [, base = name, number] = /^(.*)-(\d{1,6})$/.exec(name) ?? [];
  return `${base}-${number ? Number(number) + 1 : 2}`.slice(0, 255);
}

// Empty fields are left out, so that the server’s defaults apply.
export function quoteInput(draft: Draft): QuoteInput {
  const ports = readPorts(draft.ports);
  const env = readPairs(draft.env);
  const labels = readPairs(draft.labels);
  const { lifetime: copiedLifetime, ...copied } = draft.copied;
  const maxPrice = Number.parseFloat(draft.maxPrice.replace(",", "."));
  return {
    ...copied,
    productName: draft.productName,
    // A CPU product has no GPUs and is not sold as spot.
    ...(draft.kind === "CPU" ? { kind: draft.kind, billing: "ON_DEMAND" } : { gpuCount: wholeNumber(draft.gpuCount) ?? 0, billing: draft.billing }),
    ...(draft.name.trim() && { name: draft.name.trim() }),
    ...(draft.source === "template" && draft.templateId && { templateId: draft.templateId }),
    ...(draft.source === "image" && draft.image.trim() && { image: draft.image.trim() }),
    ...(draft.source === "image" && draft.registryAuthId && { registryAuthId: draft.registryAuthId }),
    ...(ports.length > 0 && { ports }),
    // The server creates an instance in the region of its volumes and of its network.
    ...(draft.region && draft.volumes.length === 0 && !draft.networkId && (draft.isOnlyRegion ? { regions: [draft.region] } : { region: draft.region })),
    ...(draft.volumes.length > 0 && { volumes: draft.volumes.map(({ id, mountPath }) => ({ id, mountPath: mountPath.trim() })) }),
    ...(maxPrice > 0 && { maxHourlyPrice: { amountMicros: Math.round(maxPrice * 1_000_000) } }),
    ...(draft.rootfsSizeGb.trim() && { rootfsSizeGb: wholeNumber(draft.rootfsSizeGb) ?? 0 }),
    ...(draft.command.trim() && { command: draft.command.trim() }),
    ...(draft.entrypoint.trim() && { entrypoint: draft.entrypoint.trim() }),
    ...(draft.tools.length > 0 && { tools: draft.tools }),
    ...(draft.kind !== "CPU" && draft.minCudaVersion.trim() && { minCudaVersion: draft.minCudaVersion.trim() }),
    ...(draft.networkId && { networkId: draft.networkId }),
    ...(env.length > 0 && { env }),
    ...(labels.length > 0 && { labels }),
    ...(draft.webhookUrl.trim() && { webhookUrl: draft.webhookUrl.trim() }),
    ...(draft.healthPath.trim() && { healthCheck: { path: draft.healthPath.trim() } }),
    ...(draft.recovery.isOn && { recovery: recoveryInput(draft.recovery) }),
    ...(draft.lifetime === "same" && copiedLifetime && { lifetime: copiedLifetime }),
    ...(draft.lifetime && draft.lifetime !== "same" && { lifetime: presetInput(draft.lifetime, Date.now()) }),
  };
}

export function createInput(draft: Draft, idempotencyKey: string): CreateInstanceInput {
  return { ...quoteInput(draft), ...(draft.wait && { onNoCapacity: noCapacityInput(draft) }), name: draft.name.trim(), idempotencyKey };
}

function noCapacityInput({ wait, priority }: Draft): NoCapacityInput {
  return { wait: { for: Number(wait) }, ...(priority.trim() && { priority: wholeNumber(priority) ?? -1 }) };
}

// "80, 22/tcp"; the default type is http. An invalid port is sent as 0, so that the server reports the error.
export function readPorts(text: string): PortInput[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((word) => {
      const [port = "", type = "http"] = word.split("/");
      return { port: wholeNumber(port) ?? 0, type };
    });
}

// One NAME=value per line.
export function readPairs(text: string): KeyValueInput[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const split = line.indexOf("=");
      return split < 0 ? { key: line, value: "" } : { key: line.slice(0, split).trim(), value: line.slice(split + 1) };
    });
}

export function wholeNumber(text: string): number | null {
  const number = Number(text.trim());
  return Number.isInteger(number) && Math.abs(number) < 2 ** 31 && text.trim() !== "" ? number : null;
}
