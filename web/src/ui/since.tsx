// The time since a moment, updated every second.
import { duration, moment } from "../format.ts";
import { now } from "../live/now.ts";

export function Since({ at, until }: { at: string; until?: string | null | undefined }) {
  const end = until ? Date.parse(until) : now.value;
  return (
    <time dateTime={at} title={moment(at)}>
      {duration(end - Date.parse(at))}
    </time>
  );
}
