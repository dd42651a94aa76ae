// Registry credentials to choose from.
import { RegistryAuths } from "../generated/api.ts";
import { useLoaded } from "./loaded.ts";

export interface Option {
  readonly value: string;
  readonly text: string;
}

// `none` is the choice without one. A failed read leaves only that.
export function useCredentials(none: string): Option[] {
  const found = useLoaded(RegistryAuths, {}).data?.registryAuths ?? [];
  return [{ value: "", text: none }, ...found.map(({ id, name, username }) => ({ value: id, text: `${name} · ${username}` }))];
}
