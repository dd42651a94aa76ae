// What is typed into the form for an instance, and what is asked for with it.
import type { Billing, CreateInstanceInput, KeyValueInput, PortInput, QuoteInput } from "../generated/api.ts";

export interface Draft {
  readonly name: string;
  readonly productName: string;
  readonly gpuCount: string;
  readonly source: "template" | "image";
  readonly templateId: string;
  readonly image: string;
  readonly ports: string;
  readonly billing: Billing;
  readonly region: string;
  readonly maxPrice: string;
  readonly rootfsSizeGb: string;
  readonly command: string;
  readonly env: string;
  readonly labels: string;
  readonly webhookUrl: string;
  readonly healthPath: string;
}

export const BLANK: Draft = {
  name: "",
  productName: "",
  gpuCount: "1",
  source: "template",
  templateId: "",
  image: "",
  ports: "",
  billing: "SPOT_THEN_ON_DEMAND",
  region: "",
  maxPrice: "",
  rootfsSizeGb: "",
  command: "",
  env: "",
  labels: "",
  webhookUrl: "",
  healthPath: "",
};

// Only what was given: the server has a better idea of the rest than the form.
export function quoteInput(draft: Draft): QuoteInput {
  const ports = readPorts(draft.ports);
  const env = readPairs(draft.env);
  const labels = readPairs(draft.labels);
  const maxPrice = Number.parseFloat(draft.maxPrice.replace(",", "."));
  return {
    productName: draft.productName,
    gpuCount: whole(draft.gpuCount) ?? 0,
    billing: draft.billing,
    ...(draft.name.trim() && { name: draft.name.trim() }),
    ...(draft.source === "template" && draft.templateId && { templateId: draft.templateId }),
    ...(draft.source === "image" && draft.image.trim() && { image: draft.image.trim() }),
    ...(ports.length > 0 && { ports }),
    ...(draft.region && { region: draft.region }),
    ...(maxPrice > 0 && { maxHourlyPrice: { amountMicros: Math.round(maxPrice * 1_000_000) } }),
    ...(draft.rootfsSizeGb.trim() && { rootfsSizeGb: whole(draft.rootfsSizeGb) ?? 0 }),
    ...(draft.command.trim() && { command: draft.command.trim() }),
    ...(env.length > 0 && { env }),
    ...(labels.length > 0 && { labels }),
    ...(draft.webhookUrl.trim() && { webhookUrl: draft.webhookUrl.trim() }),
    ...(draft.healthPath.trim() && { healthCheck: { path: draft.healthPath.trim() } }),
  };
}

export function createInput(draft: Draft, idempotencyKey: string): CreateInstanceInput {
  return { ...quoteInput(draft), name: draft.name.trim(), idempotencyKey };
}

// "80, 22/tcp": http unless told otherwise. What is no port is sent as 0, so that the server says what is wrong.
export function readPorts(text: string): PortInput[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((word) => {
      const [port = "", type = "http"] = word.split("/");
      return { port: whole(port) ?? 0, type };
    });
}

// One NAME=value a line.
export function readPairs(text: string): KeyValueInput[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const place = line.indexOf("=");
      return place < 0 ? { key: line, value: "" } : { key: line.slice(0, place).trim(), value: line.slice(place + 1) };
    });
}

function whole(text: string): number | null {
  const number = Number(text.trim());
  return Number.isInteger(number) && Math.abs(number) < 2 ** 31 && text.trim() !== "" ? number : null;
}
