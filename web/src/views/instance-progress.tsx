// The operation that is under way: its steps, its place in the line and when it will probably be over.
import { cancel } from "../actions.ts";
import { words } from "../format.ts";
import type { WaitBlocker } from "../generated/api.ts";
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
        {operation.wait && <Waiting {...operation.wait} />}
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

const LACKS: Partial<Record<WaitBlocker, string>> = {
  CAPACITY: "nothing that fits is in stock",
  PRICE: "what is in stock costs more than its price limit",
  BUDGET: "a budget has too little left",
  QUOTA: "a quota is used up",
  QUEUE: "what is in stock goes to others first",
};

function Waiting({ position, blockedBy, until }: NonNullable<Operation["wait"]>) {
  return (
    <p class="muted">
      Waits for capacity: number {position} of the project for this product; {LACKS[blockedBy] ?? words(blockedBy)}. Ends without a machine <Until at={until} />.{" "}
      <a href="#/market">All that wait</a>
    </p>
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
