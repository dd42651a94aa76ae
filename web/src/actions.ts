// Actions on instances: each asks for confirmation, sends an idempotency key and reports its outcome in a toast.
import { ApiError, type MutationError, newIdempotencyKey, requestWithRetry } from "./api/request.ts";
import {
  CancelOperation, DeleteInstance, DeleteInstances, ExtendLifetime, MigrateInstance, type OperationKind, RestartInstance,
  RetryOperation, StartInstance, StopInstance, StopInstances,
} from "./generated/api.ts";
import { count, explain, money, type Money } from "./format.ts";
import { toast } from "./live/toasts.ts";
import { runMutation } from "./live/run-mutation.ts";
import { confirm, type Question } from "./ui/confirm.tsx";

export type Verb = Exclude<OperationKind, "CREATE" | "UPDATE">;

interface Subject {
  readonly id: string;
  readonly name: string;
  readonly runningPricePerHour: Money | null;
}

const QUESTIONS: Record<Verb, (subject: Subject) => Question> = {
  START: ({ name, runningPricePerHour }) => ({
    title: `Start ${name}?`,
    body: `You are charged ${money(runningPricePerHour)} per hour while it is running.`,
    action: "Start",
  }),
  STOP: ({ name }) => ({
    title: `Stop ${name}?`,
    body: "Its endpoints become unavailable. Its disk is kept and still has a small charge.",
    action: "Stop",
    isDangerous: true,
  }),
  RESTART: ({ name }) => ({
    title: `Restart ${name}?`,
    body: "Its endpoints are unavailable for a while. Data that is only in memory is lost.",
    action: "Restart",
    isDangerous: true,
  }),
  MIGRATE: ({ name }) => ({
    title: `Migrate ${name} to another node?`,
    body: "Data on its local disks is lost. It starts again in the same region.",
    action: "Migrate",
    isDangerous: true,
  }),
  DELETE: ({ name }) => ({
    title: `Delete ${name}?`,
    body: "The machine and its disk are removed at the provider. This cannot be undone.",
    action: "Delete",
    isDangerous: true,
    typed: name,
  }),
};

export async function perform(verb: Verb, subject: Subject): Promise<void> {
  if (!(await confirm(QUESTIONS[verb](subject)))) return;
  const input = { id: subject.id, idempotencyKey: newIdempotencyKey() };
  if (verb === "STOP") return stop(subject, input);
  await runFor(subject.name, async () => {
    switch (verb) {
      case "START":
        return (await requestWithRetry(StartInstance, { input })).startInstance.errors;
      case "RESTART":
        return (await requestWithRetry(RestartInstance, { input })).restartInstance.errors;
      case "MIGRATE":
        return (await requestWithRetry(MigrateInstance, { input })).migrateInstance.errors;
      case "DELETE":
        return (await requestWithRetry(DeleteInstance, { input })).deleteInstance.errors;
    }
  });
}

// A stop can be undone for as long as it is under way.
async function stop(subject: Subject, input: { id: string; idempotencyKey: string }): Promise<void> {
  await runFor(subject.name, async () => {
    const { operation, errors } = (await requestWithRetry(StopInstance, { input })).stopInstance;
    if (operation) toast({ kind: "plain", title: `Stopping ${subject.name}`, undo: () => cancelNow(operation, subject.name) });
    return errors;
  });
}

const HOUR = 3600;

export async function extend(subject: { readonly id: string; readonly name: string }): Promise<void> {
  const input = { id: subject.id, by: HOUR };
  await runMutation(async () => (await requestWithRetry(ExtendLifetime, { input })).extendLifetime.errors, {
    succeeded: `${subject.name} runs one hour longer`,
    rejected: `Lifetime not extended: ${subject.name}`,
  });
}

export async function cancel(operation: { id: string }, name: string): Promise<void> {
  const isConfirmed = await confirm({
    title: "Cancel this operation?",
    body: "Changes made so far are rolled back where possible.",
    action: "Cancel operation",
    dismiss: "Don’t cancel",
    isDangerous: true,
  });
  if (isConfirmed) await cancelNow(operation, name);
}

async function cancelNow(operation: { id: string }, name: string): Promise<void> {
  const input = { id: operation.id, idempotencyKey: newIdempotencyKey() };
  await runFor(name, async () => (await requestWithRetry(CancelOperation, { input })).cancelOperation.errors);
}

export async function retry(operation: { id: string }, name: string): Promise<void> {
  const input = { id: operation.id, idempotencyKey: newIdempotencyKey() };
  await runFor(name, async () => (await requestWithRetry(RetryOperation, { input })).retryOperation.errors);
}

// The most ids that one bulk mutation accepts.
const BATCH_SIZE = 100;

export async function performMany(verb: "STOP" | "DELETE", subjects: readonly Subject[]): Promise<boolean> {
  const many = count(subjects.length, "instance");
  const shown = subjects.slice(0, 5).map((each) => each.name);
  const rest = subjects.length - shown.length;
  const names = `${shown.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
  const isConfirmed = await confirm({
    title: verb === "STOP" ? `Stop ${many}?` : `Delete ${many}?`,
    body:
      verb === "STOP"
        ? `${names}. Their disks are kept and still have a small charge.`
        : `${names}. The machines and their disks are removed at the provider. This cannot be undone.`,
    action: verb === "STOP" ? "Stop" : "Delete",
    isDangerous: true,
    ...(verb === "DELETE" ? { typed: `delete ${subjects.length}` } : {}),
  });
  if (!isConfirmed) return false;
  let errors: MutationError[] = [];
  try {
    for (let start = 0; start < subjects.length; start += BATCH_SIZE) {
      const ids = subjects.slice(start, start + BATCH_SIZE).map((each) => each.id);
      const input = { ids, idempotencyKey: newIdempotencyKey() };
      const payload =
        verb === "STOP"
          ? (await requestWithRetry(StopInstances, { input })).stopInstances
          : (await requestWithRetry(DeleteInstances, { input })).deleteInstances;
      errors = [...errors, ...payload.errors, ...payload.results.flatMap((result) => result.errors)];
    }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast({ kind: "bad", title: "Not all requests were sent", text: error.message });
    return false;
  }
  const [first] = errors;
  if (first) toast({ kind: "bad", title: `Request rejected for ${errors.length} of ${many}`, text: explain(first) });
  else toast({ kind: "plain", title: `${verb === "STOP" ? "Stopping" : "Deleting"} ${many}` });
  return true;
}

async function runFor(name: string, mutate: () => Promise<readonly MutationError[]>): Promise<void> {
  await runMutation(mutate, { rejected: `Request rejected: ${name}`, failed: `Request failed: ${name}` });
}
