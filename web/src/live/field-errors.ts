// The errors of a request by the field of the create form that they are about.
import type { MutationError } from "../api/request.ts";
import { explain } from "../format.ts";

const FIELDS: ReadonlySet<string> = new Set([
  "name", "productName", "gpuCount", "templateId", "image", "registryAuthId", "ports", "region", "maxHourlyPrice", "rootfsSizeGb",
  "command", "entrypoint", "tools", "minCudaVersion", "networkId", "env", "labels", "webhookUrl", "healthCheck", "lifetime", "recovery", "volumes", "onNoCapacity",
]);

const WITH_PARTS: ReadonlySet<string> = new Set(["volumes", "onNoCapacity", "recovery"]);

// The first error of each field; those of one volume under volumes.0.mountPath.
export function errorsByField(errors: readonly MutationError[]): Map<string, string> {
  const byField = new Map<string, string>();
  for (const error of errors) {
    const [, field, ...rest] = error.path;
    const name = field && WITH_PARTS.has(field) ? [field, ...rest].join(".") : field;
    if (name && !byField.has(name)) byField.set(name, explain(error));
  }
  return byField;
}

export function hasField(error: MutationError): boolean {
  return FIELDS.has(error.path[1] ?? "");
}
