// The logs tab: the container’s output or the provider’s log, followed, searched and copied.
import { useEffect, useRef, useState } from "preact/hooks";
import { ReadLog } from "../generated/api.ts";
import { count } from "../format.ts";
import type { Detail } from "../live/instance.ts";
import { useLoaded } from "../live/loaded.ts";
import { linesWith, useLog } from "../live/log.ts";
import { may } from "../live/viewer.ts";
import { parameter, setParameters } from "../route.ts";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icons.tsx";
import { Empty, Problem, Segments } from "../ui/parts.tsx";

// A browser is slow with more lines in one element.
const MOST_LINES = 3_000;

export function LogsTab({ instance }: { instance: Detail }) {
  if (!may("OPERATOR")) {
    return (
      <Empty icon="logs" title="Logs need another role">
        <p>Logs may contain secrets: the token needs the role OPERATOR.</p>
      </Empty>
    );
  }
  return <Logs id={instance.id} />;
}

function Logs({ id }: { id: string }) {
  const which = parameter("log") === "system" ? "SYSTEM" : "CONTAINER";
  const searched = parameter("find");
  const [isFollowed, setFollowed] = useState(true);
  const { text, isLive, problem } = useLog(id, which);
  const box = useRef<HTMLPreElement>(null);
  const lines = linesWith(text ?? "", searched);
  const shown = lines.slice(-MOST_LINES);

  useEffect(() => {
    if (isFollowed && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, isFollowed, searched]);
  // Scrolling up stops following; scrolling back to the end follows again.
  const onScroll = () => {
    const element = box.current;
    if (element) setFollowed(element.scrollHeight - element.scrollTop - element.clientHeight < 40);
  };

  return (
    <div class="stack logs">
      <div class="toolbar">
        <Segments
          label="Which log"
          value={which}
          onChange={(value) => setParameters({ log: value === "SYSTEM" ? "system" : "" })}
          options={[
            { value: "CONTAINER", text: "Container" },
            { value: "SYSTEM", text: "Provider" },
          ]}
        />
        <div class="search">
          <Icon name="search" size={16} />
          <input
            type="search"
            placeholder="Search the log"
            aria-label="Search the log"
            value={searched}
            onInput={(event) => setParameters({ find: event.currentTarget.value }, true)}
          />
        </div>
        <label class="check">
          <input type="checkbox" checked={isFollowed} onChange={(event) => setFollowed(event.currentTarget.checked)} />
          Follow
        </label>
        <Copy text={lines.join("\n")} label="the shown lines" />
        <span class="muted figures" role="status">
          {count(lines.length, searched ? "match" : "line", searched ? "matches" : "lines")}
          {text !== null && (isLive ? ", live" : ", ended")}
        </span>
      </div>
      {problem && <Problem>{problem}</Problem>}
      {text === null && !problem && <p class="muted">Reading the log …</p>}
      {text === "" && (
        <Empty icon="logs" title="The log is empty">
          <p>{isLive ? "What the container writes to its output appears here." : "The machine has no log, or the provider keeps it no longer."}</p>
        </Empty>
      )}
      {text && (
        <pre class="panel log" ref={box} onScroll={onScroll} tabIndex={0} aria-label="Log">
          {shown.map((line) => (
            <Line text={line} searched={searched} />
          ))}
          {lines.length === 0 && <span class="muted">No line contains “{searched}”.</span>}
        </pre>
      )}
    </div>
  );
}

function Line({ text, searched }: { text: string; searched: string }) {
  const at = searched ? text.toLowerCase().indexOf(searched.toLowerCase()) : -1;
  if (at < 0) return <span>{`${text}\n`}</span>;
  return (
    <span>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + searched.length)}</mark>
      {`${text.slice(at + searched.length)}\n`}
    </span>
  );
}

const LAST_LINES = 12;

// What a container wrote before it died.
export function LastLines({ id }: { id: string }) {
  const { data, problem } = useLoaded(ReadLog, { id, which: "CONTAINER", tail: LAST_LINES });
  const text = data?.instanceLog?.text ?? "";
  if (problem) return <p>Its log can’t be read: {problem}</p>;
  if (!data) return <p>Reading its last lines …</p>;
  if (!text) return <p>It has written nothing, or the provider keeps its log no longer.</p>;
  return (
    <pre class="raw last-lines" tabIndex={0} aria-label="Last lines of the log">
      {text}
    </pre>
  );
}
