/**
 * Which answers are out of date, for caches that keep each instance once.
 *
 * Answers and events come over different connections: a slow answer can arrive after an event that is newer. `version`
 * tells them apart, so select `id` and `version` wherever you select an instance or an operation.
 */
type Versioned = { __typename: string; id: string; version: number };

export class Newest {
  #versions = new Map<string, number>();

  /** Whether anything in this answer, or part of one, is older than what was delivered before or is elsewhere in it. */
  isOvertaken(answer: unknown): boolean {
    const found = [...versionedIn(answer)];
    const newest = newestOf(found);
    const known = (key: string) => Math.max(newest.get(key) ?? 0, this.#versions.get(key) ?? 0);
    return found.some((each) => each.version < known(keyOf(each)));
  }

  /** Remember what is delivered now. Returns the keys of the objects of which it has a new version. */
  deliver(answer: unknown): Set<string> {
    const changed = new Set<string>();
    for (const [key, version] of newestOf(versionedIn(answer))) {
      const before = this.#versions.get(key) ?? 0;
      if (version > before) this.#versions.set(key, version);
      if (version > before && before > 0) changed.add(key);
    }
    return changed;
  }
}

function newestOf(found: Iterable<Versioned>): Map<string, number> {
  const newest = new Map<string, number>();
  for (const each of found) newest.set(keyOf(each), Math.max(each.version, newest.get(keyOf(each)) ?? 0));
  return newest;
}

function* versionedIn(value: unknown): Iterable<Versioned> {
  if (typeof value !== "object" || value === null) return;
  if (isVersioned(value)) yield value;
  for (const inner of Object.values(value)) yield* versionedIn(inner);
}

function isVersioned(value: object): value is Versioned {
  return "__typename" in value && "id" in value && "version" in value;
}

export function keyOf({ __typename, id }: Pick<Versioned, "__typename" | "id">): string {
  return `${__typename}:${id}`; // as Apollo and urql do
}
