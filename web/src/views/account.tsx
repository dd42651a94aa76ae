// Objects of the provider account: templates, registry credentials, private networks, prewarmed and saved images.
import { Balance as BalanceQuery } from "../generated/api.ts";
import { duration, money } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { runsServer } from "../live/viewer.ts";
import { go } from "../route.ts";
import { Shape } from "../ui/chip.tsx";
import { Hidden } from "../ui/icons.tsx";
import { Problem, Tabs } from "../ui/parts.tsx";
import { Since } from "../ui/since.tsx";
import { Images, Prewarms } from "./account-images.tsx";
import { Networks, Registries } from "./account-networks.tsx";
import { Machines } from "./account-machines.tsx";
import { Templates } from "./account-templates.tsx";

const TABS = [
  { value: "templates", text: "Templates", View: Templates },
  { value: "registries", text: "Registries", View: Registries },
  { value: "networks", text: "Networks", View: Networks },
  { value: "prewarms", text: "Prewarmed images", View: Prewarms },
  { value: "images", text: "Saved images", View: Images },
  { value: "machines", text: "Unlinked machines", View: Machines },
] as const;

const DAY = 86_400;

export function AccountView({ tab }: { tab: string | null }) {
  // Machines of the account belong to no project, so only administrators of the server see them.
  const tabs = TABS.filter((each) => each.value !== "machines" || runsServer());
  const current = tabs.find((each) => each.value === tab) ?? TABS[0];
  return (
    <div class="view">
      <header class="view-head">
        <h1>Account</h1>
      </header>
      {runsServer() && <Balance />}
      <Tabs label="Objects of the account" value={current.value} tabs={tabs} onChange={(value) => go(`#/account/${value}`)}>
        <current.View key={current.value} />
      </Tabs>
    </div>
  );
}

// One account pays for all projects, so only administrators of the server see it.
function Balance() {
  const { data, problem, reload } = useLoaded(BalanceQuery, {});
  if (problem) return <Problem retry={reload}>{problem}</Problem>;
  const account = data?.account;
  return (
    <section class="summary" aria-label="Balance">
      <div class="groups">
        <div class="group">
          <span class="figure">{account ? money(account.balance, 2) : "–"}</span>
          <span class="caption">Balance{account && <>, <Since at={account.observedAt} /> ago</>}</span>
        </div>
        <div class="group">
          <span class="figure">{account ? money(account.pricePerHour, 2) : "–"}</span>
          <span class="caption">Per hour, all projects</span>
        </div>
        <div class="group">
          <span class="figure">{account && account.runway !== null ? duration(account.runway * 1000) : "–"}</span>
          {account && account.runway !== null && account.runway < DAY ? (
            <span class="caption mark warning">
              <Shape tone="warning" />
              <Hidden>Low:</Hidden>
              Left at this price
            </span>
          ) : (
            <span class="caption">Left at this price</span>
          )}
        </div>
      </div>
    </section>
  );
}
