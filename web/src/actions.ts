// What can be asked of instances, each with its second look, its key, and a word about how it went.
import { ApiError, insist, newKey, type Refusal } from "./api/request.ts";
import {
  CancelOperation, DeleteInstance, DeleteInstances, MigrateInstance, type OperationKind, RestartInstance, StartInstance,
  StopInstance, StopInstances,
} from "./generated/api.ts";
import { count, money, type Money } from "./format.ts";
import { toast } from "./live/toasts.ts";
import { told } from "./live/told.ts";
import { confirmed, type Question } from "./ui/confirm.tsx";

export type Verb = Exclude<OperationKind, "CREATE" | "UPDATE">;

interface Subject {
  readonly id: string;
  readonly name: string;
  readonly pricePerHour: Money | null;
}

const QUESTIONS: Record<Verb, (subject: Subject) => Question> = {
  START: ({ name, pricePerHour }) => ({
    title: `Start ${name}?`,
    body: `It costs ${money(pricePerHour)} an hour from the moment it runs.`,
    action: "Start",
  }),
  STOP: ({ name }) => ({
    title: `Stop ${name}?`,
    body: "What it serves goes away. Its disk is kept, and costs a little.",
    action: "Stop",
    isDangerous: true,
  }),
  RESTART: ({ name }) => ({
    title: `Restart ${name}?`,
    body: "It does not answer for a while; what is only in memory is lost.",
    action: "Restart",
    isDangerous: true,
  }),
  MIGRATE: ({ name }) => ({
    title: `Move ${name} to another node?`,
    body: "What was written to its own disks is lost. It comes up again in the same region.",
    action: "Move",
    isDangerous: true,
  }),
  DELETE: ({ name }) => ({
    title: `Delete ${name}?`,
    body: "The machine and its disk are removed at the provider. This can’t be taken back.",
    action: "Delete",
    isDangerous: true,
  }),
};

export async function perform(verb: Verb, subject: Subject): Promise<void> {
  if (!(await confirmed(QUESTIONS[verb](subject)))) return;
  const input = { id: subject.id, idempotencyKey: newKey() };
  await aboutOne(subject.name, async () => {
    switch (verb) {
      case "START":
        return (await insist(StartInstance, { input })).startInstance.errors;
      case "STOP":
        return (await insist(StopInstance, { input })).stopInstance.errors;
      case "RESTART":
        return (await insist(RestartInstance, { input })).restartInstance.errors;
      case "MIGRATE":
        return (await insist(MigrateInstance, { input })).migrateInstance.errors;
      case "DELETE":
        return (await insist(DeleteInstance, { input })).deleteInstance.errors;
    }
  });
}

export async function cancel(operation: { id: string }, name: string): Promise<void> {
  const yes = await confirmed({
    title: "Call it off?",
    body: "What was made so far is removed or put back, as far as that is possible.",
    action: "Call it off",
    isDangerous: true,
  });
  if (!yes) return;
  const input = { id: operation.id, idempotencyKey: newKey() };
  await aboutOne(name, async () => (await insist(CancelOperation, { input })).cancelOperation.errors);
}

const AT_ONCE = 100;

export async function performMany(verb: "STOP" | "DELETE", subjects: readonly Subject[]): Promise<boolean> {
  const many = count(subjects.length, "instance");
  const shown = subjects.slice(0, 5).map((each) => each.name);
  const rest = subjects.length - shown.length;
  const names = `${shown.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
  const yes = await confirmed({
    title: verb === "STOP" ? `Stop ${many}?` : `Delete ${many}?`,
    body:
      verb === "STOP"
        ? `${names}. Their disks are kept, and cost a little.`
        : `${names}. The machines and their disks are removed at the provider. This can’t be taken back.`,
    action: verb === "STOP" ? "Stop" : "Delete",
    isDangerous: true,
    ...(verb === "DELETE" && subjects.length > 10 ? { typed: `delete ${subjects.length}` } : {}),
  });
  if (!yes) return false;
  let refused: Refusal[] = [];
  try {
    for (let start = 0; start < subjects.length; start += AT_ONCE) {
      const ids = subjects.slice(start, start + AT_ONCE).map((each) => each.id);
      const input = { ids, idempotencyKey: newKey() };
      const payload =
        verb === "STOP"
          ? (await insist(StopInstances, { input })).stopInstances
          : (await insist(DeleteInstances, { input })).deleteInstances;
      refused = [...refused, ...payload.errors, ...payload.results.flatMap((result) => result.errors)];
    }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast({ kind: "bad", title: "Not all of them were asked", text: error.message });
    return false;
  }
  const [first] = refused;
  if (first) toast({ kind: "bad", title: `${refused.length} of ${many} refused`, text: first.message });
  else toast({ kind: "plain", title: `${many} will be ${verb === "STOP" ? "stopped" : "deleted"}` });
  return true;
}

async function aboutOne(name: string, act: () => Promise<readonly Refusal[]>): Promise<void> {
  await told(act, { refused: `Refused: ${name}`, failed: `Not done: ${name}` });
}
