// The frame: where one can go, whether one is connected, and the view in the middle.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { connect } from "./api/live.ts";
import { followFleet } from "./live/fleet.ts";
import { learnViewer } from "./live/viewer.ts";
import { type Route, route } from "./route.ts";
import { token } from "./session.ts";
import { type Theme, theme } from "./theme.ts";
import { Confirmation } from "./ui/confirm.tsx";
import { ConnectionState } from "./ui/connection.tsx";
import { Flame, Icon, type IconName } from "./ui/icons.tsx";
import { Toasts } from "./ui/toasts.tsx";
import { CreateView } from "./views/create.tsx";
import { FleetView } from "./views/fleet.tsx";
import { InstanceView } from "./views/instance.tsx";
import { MarketView } from "./views/market.tsx";
import { SettingsView } from "./views/settings.tsx";
import { SignIn } from "./views/sign-in.tsx";
import { WorkView } from "./views/work.tsx";

const PLACES: readonly { view: Route["view"]; hash: string; text: string; icon: IconName }[] = [
  { view: "fleet", hash: "#/", text: "Fleet", icon: "fleet" },
  { view: "create", hash: "#/create", text: "Create", icon: "create" },
  { view: "market", hash: "#/market", text: "Market", icon: "market" },
  { view: "work", hash: "#/work", text: "Work", icon: "work" },
  { view: "settings", hash: "#/settings", text: "Settings", icon: "settings" },
];

export function App() {
  return token.value === null ? <SignIn /> : <Frame key={token.value} />;
}

function Frame() {
  const main = useRef<HTMLElement>(null);
  const place = route.value;
  const here = place.view === "instance" ? "fleet" : place.view;

  // A layout effect: it comes before the effects of the views, which subscribe as soon as they are shown.
  useLayoutEffect(() => {
    const disconnect = connect();
    const unfollow = followFleet();
    const forget = learnViewer();
    return () => {
      forget();
      unfollow();
      disconnect();
    };
  }, []);

  // Whoever reads with the ears or the keyboard begins at the top of the new view.
  const isFirst = useRef(true);
  const where = place.view === "instance" ? place.id : place.view;
  useEffect(() => {
    document.title = `${PLACES.find((each) => each.view === here)?.text ?? "Fleet"} · Pilotlight`;
    if (isFirst.current) isFirst.current = false;
    else main.current?.focus();
  }, [where]);

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
      <nav class="rail" aria-label="Views">
        <a class="brand" href="#/">
          <Flame />
          <span>Pilotlight</span>
        </a>
        <ul>
          {PLACES.map((each) => (
            <li key={each.view}>
              <a href={each.hash} aria-current={each.view === here ? "page" : undefined}>
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
        <View place={place} />
      </main>
      <Toasts />
      <Confirmation />
    </div>
  );
}

function View({ place }: { place: Route }) {
  switch (place.view) {
    case "fleet":
      return <FleetView />;
    case "instance":
      return <InstanceView key={place.id} id={place.id} />;
    case "create":
      return <CreateView key={`${place.product} ${place.region}`} product={place.product} region={place.region} />;
    case "market":
      return <MarketView />;
    case "work":
      return <WorkView />;
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
