// The next action of an instance’s lifetime, counting down.
import { moment } from "../format.ts";
import { type Next, nextWords } from "../live/lifetime.ts";
import { now } from "../live/now.ts";

export function Until({ next }: { next: Next }) {
  return (
    <time dateTime={next.at} title={`${moment(next.at)}, ${next.reason.toLowerCase().replaceAll("_", " ")}`}>
      {nextWords(next, now.value)}
    </time>
  );
}
