// The page’s frame: navigation, connection status and the current view.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { connect } from "./api/subscriptions.ts";
import { followFleet } from "./live/fleet.ts";
import { loadViewer } from "./live/viewer.ts";
import { type Route, route } from "./route.ts";
import { token } from "./session.ts";
import { type Theme, theme } from "./theme.ts";
import { Confirmation } from "./ui/confirm.tsx";
import { ConnectionState } from "./ui/connection.tsx";
import { Flame, Icon, type IconName } from "./ui/icons.tsx";
import { lazy } from "./ui/lazy.tsx";
import { Toasts } from "./ui/toasts.tsx";
import { CreateView } from "./views/create.tsx";
import { FleetView } from "./views/fleet.tsx";
import { InstanceView } from "./views/instance.tsx";
import { JobsView } from "./views/jobs.tsx";
import { MarketView } from "./views/market.tsx";
import { SettingsView } from "./views/settings.tsx";
import { SignIn } from "./views/sign-in.tsx";
import { VolumesView } from "./views/volumes.tsx";

// Views that few visits need are loaded when they are opened.
const AccountView = lazy(async () => (await import("./views/account.tsx")).AccountView);
const EventsView = lazy(async () => (await import("./views/events.tsx")).EventsView);

const NAVIGATION: readonly { view: Route["view"]; hash: string; text: string; icon: IconName }[] = [
  { view: "fleet", hash: "#/", text: "Fleet", icon: "fleet" },
  { view: "create", hash: "#/create", text: "Create", icon: "create" },
  { view: "market", hash: "#/market", text: "Market", icon: "market" },
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
    return () => {
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
        <ul>
          {NAVIGATION.map((each) => (
            <li key={each.view}>
              <a href={each.hash} aria-current={each.view === section ? "page" : undefined}>
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
      <main id="main" ref={main} tabIndex={-1}>
        <View route={current} />
      </main>
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
      return <InstanceView key={route.id} id={route.id} />;
    case "create":
      return <CreateView key={`${route.product} ${route.region}`} product={route.product} region={route.region} />;
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
