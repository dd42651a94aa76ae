// What the project spends: by day, by product, region, token or label; this month, its forecast, budgets, top spenders.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { connection, subscribe } from "../api/subscriptions.ts";
import { CostReport, type CostReportResult, NamesOf, type SpendFilter, WatchSpend, type WatchSpendResult } from "../generated/api.ts";
import { count, duration, money, type Money } from "../format.ts";
import { barsOf, OTHERS } from "../live/bars.ts";
import { BY, type Choice, choice, choose, filterOf, PERIODS } from "../live/costs.ts";
import { fleet } from "../live/fleet.ts";
import { useThrottled } from "../live/throttled.ts";
import { Empty, Field, Panel, Problem, Segments } from "../ui/parts.tsx";
import { BarChart } from "../ui/bar-chart.tsx";
import { Billed } from "./costs-billed.tsx";
import { Budgets } from "./costs-budgets.tsx";
import { Quotas } from "./costs-quotas.tsx";

type Summary = WatchSpendResult["spend"];
type Names = ReadonlyMap<string, string>;

const REPORT_INTERVAL = 5_000;

export function CostsView() {
  const [summary, setSummary] = useState<Summary | null>(null);
  useEffect(() => subscribe(WatchSpend, () => ({}), { next: ({ spend }) => setSummary(spend) }), []);
  const chosen = choice();
  // The summary is sent when a cost begins or ends, up to once a second: then the report is out of date, too. A report of a
  // large project takes longer than that, and is not begun anew before it is there.
  const cursor = useThrottled(summary?.cursor, REPORT_INTERVAL);
  const { loaded, names, problem, reload } = useReport(chosen, cursor);
  return (
    <div class="view costs">
      <header class="view-head">
        <h1>Costs</h1>
        <Segments label="Period" value={chosen.period} options={PERIODS} onChange={(period) => choose({ period })} />
      </header>
      <Figures summary={summary} total={loaded?.report.parts.total ?? null} period={chosen.period} />
      {problem && <Problem retry={reload}>{problem}</Problem>}
      <Panel title="Spend by day" aside={<Grouping chosen={chosen} />}>
        {!loaded && !problem && <p class="muted body">Loading …</p>}
        {loaded && loaded.report.parts.groups.length === 0 && (
          <Empty icon="costs" title="Nothing was spent in this time">
            <p>Costs appear here as soon as an instance is billed. Budgets below limit them beforehand.</p>
            <p>
              <a class="button" href="#/market">
                View products and prices
              </a>
            </p>
          </Empty>
        )}
        {loaded && loaded.report.parts.groups.length > 0 && (
          <>
            <BarChart bars={barsOf(loaded.report, String(loaded.filter.since), Date.now())} nameOf={(key) => nameOf(key, chosen, names)} />
            <Legend report={loaded.report} chosen={chosen} names={names} />
          </>
        )}
      </Panel>
      {loaded && loaded.report.instances.groups.length > 0 && (
        <div class="columns even">
          <Top title="Instances that cost most" groups={loaded.report.instances.groups} names={names} />
          <Top title="Tokens that spend most" groups={loaded.report.tokens.groups} names={names} />
        </div>
      )}
      {loaded && <Billed report={loaded.report} reload={reload} />}
      <Budgets cursor={cursor} />
      <Quotas cursor={cursor} />
    </div>
  );
}

interface Loaded {
  readonly report: CostReportResult;
  readonly filter: SpendFilter;
}

const TOP = 10;

function useReport({ period, by, labelKey }: Choice, cursor: string | undefined) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [names, setNames] = useState<Names>(new Map());
  const [problem, setProblem] = useState<string | null>(null);
  const [revision, setRevision] = useState(0);
  const since = connection.value.phase === "live" ? connection.value.since : 0;
  useEffect(() => {
    if (by === "label" && !labelKey) return;
    const abort = new AbortController();
    const filter = filterOf(period, Date.now());
    const group = BY.find((each) => each.value === by)?.group ?? "PRODUCT";
    const load = async () => {
      const report = await request(CostReport, { filter, by: group, ...(by === "label" && { labelKey }) }, abort.signal);
      setLoaded({ report, filter });
      setProblem(null);
      const ids = [...report.instances.groups.slice(0, TOP), ...report.tokens.groups.slice(0, TOP)].flatMap(({ key }) => (key ? [key] : []));
      if (ids.length === 0) return;
      const { nodes } = await request(NamesOf, { ids }, abort.signal);
      setNames(new Map(nodes.flatMap((node) => (node ? [[node.id, node.name ?? node.tokenName ?? node.id]] : []))));
    };
    load().catch((error: unknown) => !abort.signal.aborted && setProblem(messageOf(error)));
    return () => abort.abort();
  }, [period, by, labelKey, cursor, since, revision]);
  return { loaded, names, problem, reload: () => setRevision((old) => old + 1) };
}

function Figures({ summary, total, period }: { summary: Summary | null; total: Money | null; period: Choice["period"] }) {
  const figures: [string, Money | null | undefined][] = [
    ["Per hour now", summary?.burnRate],
    ["This month so far", summary?.spentThisMonth],
    ["Forecast for this month", summary?.forecastMonthEnd],
    [period === "month" ? "This month, shown below" : `Last ${period} days`, total],
  ];
  return (
    <section class="summary" aria-label="Spend">
      <div class="groups">
        {figures.map(([caption, amount]) => (
          <div key={caption} class="group">
            <span class="figure">{money(amount, 2)}</span>
            <span class="caption">{caption}</span>
          </div>
        ))}
      </div>
    </section>
  );
}

function Grouping({ chosen }: { chosen: Choice }) {
  const keys = [...new Set([...fleet.value.byId.values()].flatMap((row) => row.labels.map((label) => label.key)))].sort();
  return (
    <div class="grouping">
      <Segments
        label="Grouped by"
        value={chosen.by}
        options={BY}
        onChange={(by) => choose({ by, labelKey: by === "label" ? chosen.labelKey || keys[0] || "" : "" })}
      />
      {chosen.by === "label" && (
        <Field label="Label">
          {(ids) => (
            <>
              <input {...ids} list="label-keys" value={chosen.labelKey} placeholder="team" onChange={(event) => choose({ labelKey: event.currentTarget.value.trim() })} />
              <datalist id="label-keys">
                {keys.map((key) => (
                  <option key={key} value={key} />
                ))}
              </datalist>
            </>
          )}
        </Field>
      )}
    </div>
  );
}

function nameOf(key: string | null, { by, labelKey }: Choice, names: Names): string {
  if (key !== null) return names.get(key) ?? key;
  if (by === "token") return "begun by Pilotlight";
  return by === "label" ? `without ${labelKey}` : "unknown";
}

function Legend({ report, chosen, names }: { report: CostReportResult; chosen: Choice; names: Names }) {
  const { groups, total } = report.parts;
  const shown = groups.slice(0, OTHERS);
  const others = total.amountMicros - shown.reduce((sum, group) => sum + group.amount.amountMicros, 0);
  return (
    <ul class="legend body">
      {shown.map((group, index) => (
        <li key={group.key}>
          <i class={`series-${index}`} aria-hidden="true" />
          <span>{nameOf(group.key, chosen, names)}</span>
          <span class="figures">{money(group.amount, 2)}</span>
        </li>
      ))}
      {groups.length > shown.length && (
        <li>
          <i class={`series-${OTHERS}`} aria-hidden="true" />
          <span>{count(groups.length - shown.length, "other")}</span>
          <span class="figures">{money({ amountMicros: others, currency: "USD" }, 2)}</span>
        </li>
      )}
    </ul>
  );
}

type Groups = CostReportResult["instances"]["groups"];

function Top({ title, groups, names }: { title: string; groups: Groups; names: Names }) {
  const shown = groups.slice(0, TOP);
  const highest = Math.max(1, ...shown.map((group) => group.amount.amountMicros));
  return (
    <Panel title={title} aside={groups.length > TOP && <span class="muted">{TOP} of {count(groups.length, "")}</span>}>
      <table class="grid-table top">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col" class="right">Paid time</th>
            <th scope="col" class="right">Cost</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((group) => (
            <tr key={group.key}>
              <td>
                <span class="wrap">
                  {group.key?.startsWith("inst_") ? (
                    <a href={`#/instances/${group.key}`}>{names.get(group.key) ?? group.key}</a>
                  ) : (
                    (group.key && (names.get(group.key) ?? group.key)) || "begun by Pilotlight"
                  )}
                </span>
                <span class="bar" aria-hidden="true">
                  <i style={{ width: `${(group.amount.amountMicros / highest) * 100}%` }} />
                </span>
              </td>
              <td class="right figures short">{duration(group.paidTime * 1000)}</td>
              <td class="right figures short">{money(group.amount, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}
