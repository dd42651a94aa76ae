// Budgets: how much of each is spent and promised, when it will be used up, and forms for administrators.
import { useEffect, useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { type BudgetAction, Budgets as BudgetsQuery, type BudgetsResult, CreateBudget, DeleteBudget, UpdateBudget } from "../generated/api.ts";
import { money, type Money, moment, words } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { runMutation } from "../live/run-mutation.ts";
import { microsOf, scopeInput, scopeOf, useTokenNames } from "../live/scope.ts";
import { may } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { confirm } from "../ui/confirm.tsx";
import { ObjectForm } from "../ui/objects.tsx";
import { Empty, Panel, Problem } from "../ui/parts.tsx";

type Budget = BudgetsResult["budgets"]["nodes"][number];

const ACTIONS: Record<BudgetAction, string> = {
  NOTIFY: "announces only",
  BLOCK: "refuses creates and starts",
  STOP: "refuses creates, stops instances",
  DELETE: "refuses creates, deletes instances",
  OTHER: "unknown action",
};

export function Budgets({ cursor }: { cursor: string | undefined }) {
  const { data, problem, reload } = useLoaded(BudgetsQuery, {});
  useEffect(() => {
    if (cursor) reload();
  }, [cursor]);
  const budgets = data?.budgets.nodes;
  const names = useTokenNames(budgets?.map((budget) => budget.scope));
  return (
    <div class={may("ADMIN") ? "columns" : "stack"}>
      <Panel title="Budgets">
        {problem && <Problem retry={reload}>{problem}</Problem>}
        {!budgets && !problem && <p class="muted body">Loading …</p>}
        {budgets?.length === 0 && (
          <Empty icon="costs" title="No budget yet">
            <p>
              A budget limits what the project, a label or a token may spend in a day, week or month. It refuses creates that could pass it,
              and can stop instances before it is used up.{may("ADMIN") && " Create one with the form."}
            </p>
          </Empty>
        )}
        {budgets?.map((budget) => (
          <BudgetRow key={budget.id} budget={budget} names={names} reload={reload} />
        ))}
      </Panel>
      {may("ADMIN") && <NewBudget done={reload} />}
    </div>
  );
}

function BudgetRow({ budget: given, names, reload }: { budget: Budget; names: ReadonlyMap<string, string>; reload: () => void }) {
  // That of a token is created with it, and called by its id.
  const { tokenId } = given.scope;
  const budget = tokenId ? { ...given, name: given.name.replace(tokenId, names.get(tokenId) ?? tokenId) } : given;
  const limit = Math.max(1, budget.limit.amountMicros);
  const percent = (amount: Money) => Math.min(100, (amount.amountMicros / limit) * 100);
  const promised = { amountMicros: budget.committed.amountMicros + budget.reserved.amountMicros, currency: "USD" };
  const spent = percent(budget.spent);
  const isNear = budget.state === "EXHAUSTED" || spent >= 80;
  const remove = async () => {
    const isConfirmed = await confirm({
      title: `Delete the budget ${budget.name}?`,
      body: "Nothing limits this spend any more.",
      action: "Delete",
      isDangerous: true,
    });
    if (!isConfirmed) return;
    const input = { id: budget.id };
    await runMutation(async () => (await requestWithRetry(DeleteBudget, { input })).deleteBudget.errors, { rejected: "Budget not deleted" });
    reload();
  };
  return (
    <section class="budget body" aria-label={`Budget ${budget.name}`}>
      <header>
        <strong>{budget.name}</strong>
        <span class="muted">
          {scopeOf(budget.scope, names)}, {budget.period === "TOTAL" ? "in total" : `each ${words(budget.period).toLowerCase()}`}, {ACTIONS[budget.action]}
        </span>
        {budget.state === "EXHAUSTED" && <Chip tone="bad">Used up</Chip>}
      </header>
      <div
        class={`bar budget-bar ${isNear ? "bad" : "good"}`}
        role="meter"
        aria-label={`Spent of ${budget.name}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(spent)}
        aria-valuetext={`${money(budget.spent, 2)} of ${money(budget.limit, 2)}`}
      >
        <i style={{ width: `${spent}%` }} />
        <i class="promised" style={{ width: `${Math.min(100 - spent, percent(promised))}%` }} />
      </div>
      <p class="figures">
        {money(budget.spent, 2)} of {money(budget.limit, 2)} spent, {money(promised, 2)} promised to running machines, {money(budget.remaining, 2)} left
      </p>
      <p class="muted">
        {budget.exhaustsAt ? `Used up ${moment(budget.exhaustsAt)} at the present rate.` : "Lasts for this period at the present rate."}
        {budget.resetsAt && ` Begins anew ${moment(budget.resetsAt)}.`}
      </p>
      {may("ADMIN") && (
        <div class="buttons">
          <Limit budget={budget} reload={reload} />
          <button type="button" class="button small danger" aria-label={`Delete the budget ${budget.name}`} onClick={remove}>
            Delete
          </button>
        </div>
      )}
    </section>
  );
}

function Limit({ budget, reload }: { budget: Budget; reload: () => void }) {
  const [text, setText] = useState<string | null>(null);
  if (text === null) {
    return (
      <button type="button" class="button small" aria-label={`Change limit of ${budget.name}`} onClick={() => setText(String(budget.limit.amountMicros / 1_000_000))}>
        Change limit
      </button>
    );
  }
  const save = async (event: Event) => {
    event.preventDefault();
    const input = { id: budget.id, limit: microsOf(text) };
    const isDone = await runMutation(async () => (await requestWithRetry(UpdateBudget, { input })).updateBudget.errors, {
      succeeded: "Budget changed",
      rejected: "Budget not changed",
    });
    if (isDone) setText(null);
    reload();
  };
  return (
    <form class="grow" onSubmit={save}>
      <input aria-label={`New limit of ${budget.name}, $`} inputMode="decimal" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <button type="submit" class="button small">
        Save
      </button>
    </form>
  );
}

function NewBudget({ done }: { done: () => void }) {
  return (
    <ObjectForm
      title="New budget"
      action="Create budget"
      succeeded="Budget created"
      inputs={[
        { name: "name", label: "Name", placeholder: "research" },
        { name: "limit", label: "Limit, $", placeholder: "500" },
        {
          name: "period",
          label: "Period",
          options: [
            { value: "MONTH", text: "each month" },
            { value: "WEEK", text: "each week" },
            { value: "DAY", text: "each day" },
            { value: "TOTAL", text: "in total" },
          ],
        },
        { name: "scope", label: "Only this label", isOptional: true, placeholder: "team=research", hint: "empty: the whole project" },
        {
          name: "action",
          label: "When it would be passed",
          options: [
            { value: "BLOCK", text: "refuse creates, starts and extensions" },
            { value: "STOP", text: "refuse, and stop instances before" },
            { value: "DELETE", text: "refuse, and delete instances before" },
            { value: "NOTIFY", text: "announce only" },
          ],
        },
      ]}
      submit={async ({ name = "", limit = "", period, scope = "", action }, idempotencyKey) => {
        const input = {
          name,
          limit: microsOf(limit),
          period: period as "MONTH",
          action: action as BudgetAction,
          scope: scopeInput(scope),
          idempotencyKey,
        };
        return (await requestWithRetry(CreateBudget, { input })).createBudget.errors;
      }}
      done={done}
    />
  );
}
