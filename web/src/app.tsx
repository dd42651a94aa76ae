// The page’s frame: navigation, connection status and the current view.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { connect } from "./api/subscriptions.ts";
import { followFleet } from "./live/fleet.ts";
import { followStatus } from "./live/status.ts";
import { loadViewer } from "./live/viewer.ts";
import { fleetHash, type Route, route } from "./route.ts";
import { token } from "./session.ts";
import { type Theme, theme } from "./theme.ts";
import { Confirmation } from "./ui/confirm.tsx";
import { ConnectionState } from "./ui/connection.tsx";
import { Flame, Icon, type IconName } from "./ui/icons.tsx";
import { lazy } from "./ui/lazy.tsx";
import { Strip } from "./ui/strip.tsx";
import { bringIntoView } from "./ui/parts.tsx";
import { Toasts } from "./ui/toasts.tsx";
import { FleetView } from "./views/fleet.tsx";
import { InstanceView } from "./views/instance.tsx";
import { SignIn } from "./views/sign-in.tsx";

// Every visit shows the fleet and most an instance; other views are loaded when they are opened.
const CreateView = lazy(async () => (await import("./views/create.tsx")).CreateView);
const MarketView = lazy(async () => (await import("./views/market.tsx")).MarketView);
const VolumesView = lazy(async () => (await import("./views/volumes.tsx")).VolumesView);
const CostsView = lazy(async () => (await import("./views/costs.tsx")).CostsView);
const JobsView = lazy(async () => (await import("./views/jobs.tsx")).JobsView);
const SettingsView = lazy(async () => (await import("./views/settings.tsx")).SettingsView);
const AccountView = lazy(async () => (await import("./views/account.tsx")).AccountView);
const EventsView = lazy(async () => (await import("./views/events.tsx")).EventsView);

const NAVIGATION: readonly { view: Route["view"]; hash: string; text: string; icon: IconName }[] = [
  { view: "fleet", hash: "#/", text: "Fleet", icon: "fleet" },
  { view: "create", hash: "#/create", text: "Create", icon: "create" },
  { view: "market", hash: "#/market", text: "Market", icon: "market" },
  { view: "costs", hash: "#/costs", text: "Costs", icon: "costs" },
  { view: "volumes", hash: "#/volumes", text: "Volumes", icon: "volumes" },
  { view: "account", hash: "#/account", text: "Account", icon: "account" },
  { view: "events", hash: "#/events", text: "Events", icon: "pulse" },
  { view: "jobs", hash: "#/jobs", text: "Jobs", icon: "jobs" },
  { view: "settings", hash: "#/settings", text: "Settings", icon: "settings" },
];

export function App() {
  return token.value === null ? <SignIn /> : <Frame key={token.value} />;
}

function Frame() {
  const main = useRef<HTMLElement>(null);
  const current = route.value;
  const section = current.view === "instance" ? "fleet" : current.view;

  // A layout effect runs before the views’ effects, which subscribe on this connection.
  useLayoutEffect(() => {
    const disconnect = connect();
    const unfollowFleet = followFleet();
    const clearViewer = loadViewer();
    const unfollowStatus = followStatus();
    return () => {
      unfollowStatus();
      clearViewer();
      unfollowFleet();
      disconnect();
    };
  }, []);

  // Screen readers and keyboards start at the top of a new view.
  const isFirst = useRef(true);
  const focusKey = current.view === "instance" ? current.id : current.view;
  useEffect(() => {
    document.title = `${NAVIGATION.find((each) => each.view === section)?.text ?? "Fleet"} · Pilotlight`;
    if (isFirst.current) isFirst.current = false;
    else main.current?.focus();
  }, [focusKey]);

  // On a phone the navigation is wider than the screen.
  const rail = useRef<HTMLUListElement>(null);
  useEffect(() => bringIntoView(rail.current, "[aria-current]"), [section]);

  return (
    <div class="frame">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <nav class="rail" aria-label="Main navigation">
        <a class="brand" href="#/">
          <Flame />
          <span>Pilotlight</span>
        </a>
        <ul ref={rail}>
          {NAVIGATION.map((each) => (
            <li key={each.view}>
              <a href={each.view === "fleet" ? fleetHash.value : each.hash} aria-current={each.view === section ? "page" : undefined}>
                <Icon name={each.icon} />
                <span>{each.text}</span>
              </a>
            </li>
          ))}
        </ul>
        <div class="rail-foot">
          <ThemeSwitch />
          <ConnectionState />
        </div>
      </nav>
      <div class="content">
        <Strip />
        <main id="main" ref={main} tabIndex={-1}>
          <View route={current} />
        </main>
      </div>
      <Toasts />
      <Confirmation />
    </div>
  );
}

function View({ route }: { route: Route }) {
  switch (route.view) {
    case "fleet":
      return <FleetView />;
    case "instance":
      return <InstanceView key={route.id} id={route.id} tab={route.tab} />;
    case "create":
      return <CreateView key={JSON.stringify(route.query)} given={route.query} />;
    case "costs":
      return <CostsView />;
    case "market":
      return <MarketView />;
    case "volumes":
      return <VolumesView />;
    case "account":
      return <AccountView tab={route.tab} />;
    case "events":
      return <EventsView tab={route.tab} />;
    case "jobs":
      return <JobsView />;
    case "settings":
      return <SettingsView />;
  }
}

const NEXT: Record<Theme, { theme: Theme; icon: IconName; text: string }> = {
  system: { theme: "light", icon: "auto", text: "System theme" },
  light: { theme: "dark", icon: "sun", text: "Light theme" },
  dark: { theme: "system", icon: "moon", text: "Dark theme" },
};

function ThemeSwitch() {
  const { icon, text, theme: next } = NEXT[theme.value];
  return (
    <button
      type="button"
      class="theme-switch"
      aria-label={`${text}. Switch to ${next}`}
      onClick={() => {
        theme.value = next;
      }}
    >
      <Icon name={icon} size={16} />
      <span>{text}</span>
    </button>
  );
}
