// What happens in the project besides its instances, and the webhooks that are sent all events.
import { useEffect, useState } from "preact/hooks";
import { ApiError, messageOf, request } from "../api/request.ts";
import { subscribe } from "../api/subscriptions.ts";
import { FollowProjectEvents, type ProjectEventRow, ProjectEvents as ProjectEventsQuery, type ProjectEventsResult } from "../generated/api.ts";
import { duration, moment, money } from "../format.ts";
import { may } from "../live/viewer.ts";
import { go } from "../route.ts";
import { Empty, Panel, Problem, Tabs } from "../ui/parts.tsx";
import { Webhooks } from "./events-webhooks.tsx";

const TABS = [
  { value: "project", text: "Project events", View: ProjectEvents },
  { value: "webhooks", text: "Webhooks", View: Webhooks },
] as const;

const SHOWN = 200; // the newest

export function EventsView({ tab }: { tab: string | null }) {
  const current = TABS.find((each) => each.value === tab) ?? TABS[0];
  return (
    <div class="view">
      <header class="view-head">
        <h1>Events</h1>
      </header>
      <Tabs label="Events and webhooks" value={current.value} tabs={TABS} onChange={(value) => go(`#/events/${value}`)}>
        <current.View key={current.value} />
      </Tabs>
    </div>
  );
}

function ProjectEvents() {
  const { events, problem, restart } = useProjectEvents();
  if (problem) return <Problem retry={restart}>{problem}</Problem>;
  if (!events) return <p class="muted">Loading …</p>;
  if (events.length === 0) {
    return (
      <Empty icon="pulse" title="No events yet">
        <p>
          Events that are not about one instance are shown here, such as a balance that is low or a volume that is available. Those of an instance
          are on its page.
          {may("ADMIN") && (
            <>
              {" "}
              A <a href="#/events/webhooks">webhook</a> sends them to a program.
            </>
          )}
        </p>
      </Empty>
    );
  }
  return (
    <Panel title="Newest first">
      <table class="grid-table cards-on-phone">
        <thead>
          <tr>
            <th scope="col">Event</th>
            <th scope="col">Values</th>
            <th scope="col">Caused by</th>
            <th scope="col">Time</th>
          </tr>
        </thead>
        <tbody>
          {[...events].reverse().map((event) => (
            <tr key={event.id}>
              <td data-label="Event">
                <code>{event.type}</code>
              </td>
              <td data-label="Values">
                <span class="wrap">{event.data.map(valueText).join(", ") || "–"}</span>
              </td>
              <td data-label="Caused by">{event.causedBy?.name ?? "–"}</td>
              <td data-label="Time" class="figures">
                {moment(event.occurredAt)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

// balanceMicros 50000000 -> balance $50.00
export function valueText({ key, value }: { key: string; value: string }): string {
  const number = Number(value);
  if (key.endsWith("Micros") && Number.isFinite(number)) return `${key.slice(0, -6)} ${money({ amountMicros: number, currency: "USD" }, 2)}`;
  if (key.endsWith("Seconds") && Number.isFinite(number)) return `${key.slice(0, -7)} ${duration(number * 1000)}`;
  return `${key} ${value}`;
}

// The log to its end, then each new event behind it.
function useProjectEvents() {
  const [events, setEvents] = useState<readonly ProjectEventRow[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [revision, setRevision] = useState(0);
  const restart = () => setRevision((old) => old + 1);
  useEffect(() => {
    const abort = new AbortController();
    let stop = () => {};
    const follow = async () => {
      let rows: readonly ProjectEventRow[] = [];
      let after: string | null = null;
      for (let hasMore = true; hasMore; ) {
        const page: ProjectEventsResult["projectEvents"] = (await request(ProjectEventsQuery, { after }, abort.signal)).projectEvents;
        rows = [...rows, ...page.nodes].slice(-SHOWN);
        after = page.pageInfo.endCursor;
        hasMore = page.pageInfo.hasNextPage;
      }
      setProblem(null);
      setEvents(rows);
      stop = subscribe(FollowProjectEvents, () => ({ after }), {
        next: ({ projectEvents: event }) => {
          after = event.cursor;
          rows = [...rows, event].slice(-SHOWN);
          setEvents(rows);
        },
        // The cursor has expired: read everything again.
        onError: (code, message) => (code === "CURSOR_EXPIRED" ? restart() : setProblem(message)),
      });
      if (abort.signal.aborted) stop();
    };
    follow().catch((error: unknown) => {
      if (abort.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      setProblem(messageOf(error));
    });
    return () => {
      abort.abort();
      stop();
    };
  }, [revision]);
  return { events, problem, restart };
}
