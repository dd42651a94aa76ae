// What the provider billed, beside what the ledger has for the same days.
import { requestWithRetry } from "../api/request.ts";
import { type CostReportResult, SyncSpend } from "../generated/api.ts";
import { count, money } from "../format.ts";
import { differs, newestFirst } from "../live/billed.ts";
import { runMutation } from "../live/run-mutation.ts";
import { toast } from "../live/toasts.ts";
import { may } from "../live/viewer.ts";
import { Chip } from "../ui/chip.tsx";
import { Panel } from "../ui/parts.tsx";

const SHOWN = 14;

export function Billed({ report, reload }: { report: CostReportResult; reload: () => void }) {
  const { billed, difference, billedUntil, billedDays } = report.parts;
  const days = newestFirst(billedDays ?? []);
  return (
    <Panel title="Billed by the provider" aside={may("ADMIN") && <Compare done={reload} />}>
      {billed === null || difference === null || billedUntil === null ? (
        <p class="muted body">No day of this time is compared with the bill yet. A day is compared six hours after its end (UTC).</p>
      ) : (
        <>
          <p class="body figures">
            {money(billed, 2)} billed for the days before {billedUntil.slice(0, 10)} (UTC), {money(ledgerOf(billed, difference), 2)} in the ledger:{" "}
            {gap(difference.amountMicros, "no difference")}
          </p>
          <table class="grid-table billed">
            <thead>
              <tr>
                <th scope="col">Day (UTC)</th>
                <th scope="col" class="right">Ledger</th>
                <th scope="col" class="right">Billed</th>
                <th scope="col" class="right">Difference</th>
              </tr>
            </thead>
            <tbody>
              {days.slice(0, SHOWN).map((day) => (
                <tr key={day.day}>
                  <td>
                    <span class="short">{day.day}</span> {differs(day) && <Chip tone="warning">Differs</Chip>}
                  </td>
                  <td class="right figures short">{money(day.ledger, 2)}</td>
                  <td class="right figures short">{money(day.billed, 2)}</td>
                  <td class="right figures short">{gap(day.billed.amountMicros - day.ledger.amountMicros)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {days.length > SHOWN && <p class="muted body">{count(days.length - SHOWN, "earlier day")} not shown.</p>}
        </>
      )}
    </Panel>
  );
}

function Compare({ done }: { done: () => void }) {
  const compare = async () => {
    await runMutation(
      async () => {
        const { lines, errors } = (await requestWithRetry(SyncSpend, {})).syncSpend;
        if (errors.length === 0) toast({ kind: "good", title: "Compared with the bill", text: `${count(lines, "line")} read` });
        return errors;
      },
      { rejected: "The bill was not read" },
    );
    done();
  };
  return (
    <button type="button" class="button small" onClick={compare}>
      Compare now
    </button>
  );
}

function ledgerOf(billed: { amountMicros: number }, difference: { amountMicros: number }) {
  return { amountMicros: billed.amountMicros - difference.amountMicros, currency: "USD" };
}

function gap(micros: number, none = "–"): string {
  const shown = money({ amountMicros: Math.abs(micros), currency: "USD" }, 2);
  if (Math.abs(micros) < 5_000) return none;
  return micros > 0 ? `${shown} more` : `${shown} less`;
}
