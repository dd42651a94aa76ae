// The operation that is under way: its steps, its place in the line and when it will probably be over.
import { cancel } from "../actions.ts";
import { words } from "../format.ts";
import type { Detail, Entry } from "../live/instance.ts";
import { stepsOf } from "../live/phases.ts";
import { may } from "../live/viewer.ts";
import { Since, Until } from "../ui/since.tsx";
import { Steps } from "../ui/steps.tsx";

type Operation = Detail["operations"][number];

export function openOperation(instance: Detail): Operation | undefined {
  return instance.operations.find((each) => each.status === "QUEUED" || each.status === "RUNNING");
}

export function Progress({ instance, entries }: { instance: Detail; entries: readonly Entry[] }) {
  const operation = openOperation(instance);
  if (!operation) return null;
  const isCancellable = operation.kind !== "DELETE" && may("OPERATOR");
  return (
    <section class="progress" aria-label="In progress">
      <div>
        <strong>{words(operation.kind)}</strong>
        <span class="muted">
          {" "}
          · <Since at={operation.createdAt} />
        </span>
        <Expected instance={instance} operation={operation} />
        {operation.lastError && (
          <p class="muted">
            Waits: {operation.lastError.message} <code>{operation.lastError.code}</code>
          </p>
        )}
      </div>
      {isCancellable ? (
        <button type="button" class="button small" onClick={() => cancel(operation, instance.name)}>
          Cancel
        </button>
      ) : (
        <span />
      )}
      <Steps steps={stepsOf(operation, entries)} />
    </section>
  );
}

// The place of a create that waits for its turn, and when the instance is probably ready.
function Expected({ instance, operation }: { instance: Detail; operation: Operation }) {
  const { queue } = operation;
  const readyAt = operation.estimatedReadyAt && instance.estimatedReadyAt;
  if (!queue && !readyAt) return null;
  return (
    <p class="muted">
      {queue && (
        <>
          Number {queue.position} in line, begins <Until at={queue.startsAt} />
          {readyAt ? "; ready " : "."}
        </>
      )}
      {readyAt && (
        <>
          {!queue && "Ready "}
          <Until at={readyAt} />.
        </>
      )}
    </p>
  );
}
