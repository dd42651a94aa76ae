// The form that creates a token, with limits for a program.
import { useState } from "preact/hooks";
import { messageOf, type MutationError, request } from "../api/request.ts";
import { CreateToken, type Role } from "../generated/api.ts";
import { explain } from "../format.ts";
import { limitsInput, type LimitTexts, NO_LIMITS } from "../live/token-limits.ts";
import { Field, Problem } from "../ui/parts.tsx";

const LIMITS = [
  { name: "budget", label: "May spend in total, $", placeholder: "20", hint: "a budget of its own" },
  { name: "maxInstances", label: "Most instances at once", placeholder: "2", hint: "a quota of its own" },
  { name: "maxPricePerHour", label: "Highest price per hour, $", placeholder: "5", hint: "of all its machines together" },
  { name: "maxDuration", label: "Longest run, hours", placeholder: "2", hint: "also the default" },
  { name: "productNames", label: "Only these products", placeholder: "RTX 4090 24GB", hint: "separated by commas" },
  { name: "regions", label: "Only these regions", placeholder: "AS-SGP-02", hint: "separated by commas" },
] as const;

export function NewToken({ onCreated }: { onCreated: (secret: string) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("OPERATOR");
  const [days, setDays] = useState("");
  const [limits, setLimits] = useState<LimitTexts>(NO_LIMITS);
  const [errors, setErrors] = useState<Record<string, string>>({});
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      const expiresAt = days ? new Date(Date.now() + Number(days) * 86_400_000).toISOString() : null;
      const given = role === "ADMIN" ? null : limitsInput(limits);
      const payload = (await request(CreateToken, { input: { name: name.trim(), role, expiresAt, limits: given } })).createToken;
      setErrors(Object.fromEntries(payload.errors.map((error) => [fieldOf(error), explain(error)])));
      if (!payload.secret) return;
      setName("");
      setLimits(NO_LIMITS);
      onCreated(payload.secret);
    } catch (caught) {
      setErrors({ "": messageOf(caught) });
    }
  };
  return (
    <form class="new-token" onSubmit={submit}>
      {errors[""] && <Problem>{errors[""]}</Problem>}
      <div class="inline-form">
        <Field label="New token’s name" error={errors.name} hint="what it is used for">
          {(ids) => <input {...ids} value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" placeholder="backend" />}
        </Field>
        <Field label="Role">
          {(ids) => (
            <select {...ids} value={role} onChange={(event) => setRole(event.currentTarget.value as Role)}>
              <option value="READER">Reader</option>
              <option value="OPERATOR">Operator</option>
              <option value="ADMIN">Admin</option>
            </select>
          )}
        </Field>
        <Field label="Expires" error={errors.expiresAt}>
          {(ids) => (
            <select {...ids} value={days} onChange={(event) => setDays(event.currentTarget.value)}>
              <option value="">never</option>
              <option value="7">in 7 days</option>
              <option value="90">in 90 days</option>
              <option value="365">in 1 year</option>
            </select>
          )}
        </Field>
      </div>
      {role !== "ADMIN" && (
        <details>
          <summary>Limits for a program</summary>
          <div class="pair">
            {LIMITS.map((limit) => (
              <Field key={limit.name} label={limit.label} hint={limit.hint} error={errors[limit.name]}>
                {(ids) => (
                  <input
                    {...ids}
                    name={limit.name}
                    value={limits[limit.name]}
                    placeholder={limit.placeholder}
                    autocomplete="off"
                    onInput={(event) => setLimits({ ...limits, [limit.name]: event.currentTarget.value })}
                  />
                )}
              </Field>
            ))}
          </div>
          <label class="check">
            <input
              type="checkbox"
              checked={limits.ownInstancesOnly}
              onChange={(event) => setLimits({ ...limits, ownInstancesOnly: event.currentTarget.checked })}
            />
            Sees only the instances that it created
          </label>
        </details>
      )}
      <button type="submit" class="button" aria-label="Create token" disabled={!name.trim()}>
        Create
      </button>
    </form>
  );
}

function fieldOf({ path }: MutationError): string {
  const field = (path[1] === "limits" ? path[2] : path[1]) ?? "";
  return field === "name" || field === "expiresAt" || LIMITS.some((limit) => limit.name === field) ? field : "";
}
