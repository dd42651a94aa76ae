// The time since a moment, or until one, updated every second.
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

// For estimates: one that has passed was wrong, and says nothing more.
export function Until({ at }: { at: string }) {
  const left = Date.parse(at) - now.value;
  return (
    <time dateTime={at} title={moment(at)}>
      {left < 1000 ? "any moment" : `in about ${duration(left)}`}
    </time>
  );
}

// The provider takes a spot instance back at this time.
export function Reclaim({ at }: { at: string }) {
  const left = Date.parse(at) - now.value;
  return (
    <time class="reclaim" dateTime={at} title={`The provider takes this spot instance back at ${moment(at)}`}>
      {left > 0 ? `reclaimed in ${duration(left)}` : "being reclaimed"}
    </time>
  );
}
