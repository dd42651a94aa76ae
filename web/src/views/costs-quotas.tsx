// Quotas: how many machines each scope has and may have at once, and forms for administrators.
import { useEffect } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { Quotas as QuotasQuery, type QuotasResult, SetQuota, type SetQuotaInput } from "../generated/api.ts";
import { money } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { microsOf, scopeInput, scopeOf, useTokenNames } from "../live/scope.ts";
import { may } from "../live/viewer.ts";
import { ObjectForm, ObjectList } from "../ui/objects.tsx";

type Quota = QuotasResult["quotas"]["nodes"][number];

export function Quotas({ cursor }: { cursor: string | undefined }) {
  const { data, problem, reload } = useLoaded(QuotasQuery, {});
  useEffect(() => {
    if (cursor) reload();
  }, [cursor]);
  const quotas = data?.quotas.nodes ?? null;
  const names = useTokenNames(quotas?.map((quota) => quota.scope));
  const remove = async (id: string) => {
    const quota = quotas?.find((each) => each.id === id);
    if (!quota) return [];
    return (await requestWithRetry(SetQuota, { input: { scope: scopeAgain(quota) } })).setQuota.errors;
  };
  return (
    <div class={may("ADMIN") ? "columns" : "stack"}>
      <ObjectList
        title="Quotas"
        icon="costs"
        items={quotas}
        problem={problem}
        nameOf={(quota) => `the quota of ${scopeOf(quota.scope, names)}`}
        columns={[
          { title: "Scope", show: (quota) => scopeOf(quota.scope, names) },
          { title: "Instances", isShort: true, show: (quota) => used(quota.usedInstances, quota.maxInstances) },
          { title: "GPUs", isShort: true, show: (quota) => used(quota.usedGpus, quota.maxGpus) },
          { title: "Per hour", isShort: true, show: (quota) => used(money(quota.usedPricePerHour, 2), quota.maxPricePerHour && money(quota.maxPricePerHour, 2)) },
        ]}
        empty={<p>A quota limits how many instances and GPUs the project, a label or a token may have at once, and their price per hour.</p>}
        removal={may("ADMIN") ? { verb: "Remove", warning: "Nothing limits how many machines this scope has any more.", run: remove } : undefined}
        reload={reload}
      />
      {may("ADMIN") && <NewQuota done={reload} />}
    </div>
  );
}

function used(now: number | string, most: number | string | null): string {
  return most === null ? `${now}, no limit` : `${now} of ${most}`;
}

function scopeAgain({ scope }: Quota): SetQuotaInput["scope"] {
  if (scope.label) return { label: { key: scope.label.key, value: scope.label.value } };
  return scope.tokenId ? { tokenId: scope.tokenId } : { project: true };
}

function NewQuota({ done }: { done: () => void }) {
  return (
    <ObjectForm
      title="Set a quota"
      action="Set quota"
      succeeded="Quota set"
      inputs={[
        { name: "scope", label: "Only this label", isOptional: true, placeholder: "team=research", hint: "empty: the whole project" },
        { name: "maxInstances", label: "Most instances", isOptional: true, placeholder: "20" },
        { name: "maxGpus", label: "Most GPUs", isOptional: true, placeholder: "32" },
        { name: "maxPricePerHour", label: "Highest price per hour, $", isOptional: true, placeholder: "50" },
      ]}
      note="It replaces the scope’s present quota. What runs already stays."
      submit={async ({ scope = "", maxInstances = "", maxGpus = "", maxPricePerHour = "" }) => {
        const input = {
          scope: scopeInput(scope),
          maxInstances: numberOf(maxInstances),
          maxGpus: numberOf(maxGpus),
          maxPricePerHour: maxPricePerHour ? microsOf(maxPricePerHour) : null,
        };
        const isEmpty = input.maxInstances === null && input.maxGpus === null && input.maxPricePerHour === null;
        if (isEmpty) return [{ code: "NO_MAXIMUM", message: "Enter at least one maximum.", path: ["input", "maxInstances"], help: null }];
        return (await requestWithRetry(SetQuota, { input })).setQuota.errors;
      }}
      done={done}
    />
  );
}

function numberOf(text: string): number | null {
  return text === "" ? null : Math.round(Number(text)) || 0;
}
