// Line icons on a 24 px grid, inline so that nothing is loaded for them.
import type { ComponentChildren } from "preact";

const PATHS = {
  fleet: "M4 5h16v5H4zM4 14h16v5H4zM8 7.5h.01M8 16.5h.01",
  create: "M12 5v14M5 12h14",
  market: "M4 19V9M10 19V5M16 19v-7M21 19H3",
  costs: "M12 3v18M16.5 7.5c-.8-1.3-2.4-2-4.5-2-2.6 0-4.5 1.2-4.5 3.2 0 4.6 9.3 2 9.3 6.6 0 2-2 3.2-4.8 3.2-2.3 0-4.1-.8-5-2.3",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  logs: "M5 5h14M5 10h14M5 15h9M5 20h11",
  account: "M3 7h18v12H3zM3 11h18M7 15h4",
  volumes: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zM4 6v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  jobs: "M12 4l8 4-8 4-8-4 8-4zM4 12l8 4 8-4M4 16l8 4 8-4",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M13 7a2 2 0 1 0 4 0 2 2 0 1 0-4 0M7 17a2 2 0 1 0 4 0 2 2 0 1 0-4 0",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 1 0 0-14M20 20l-4-4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 1 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  moon: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  back: "M19 12H5M11 6l-6 6 6 6",
  open: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  refresh: "M20 11a8 8 0 1 0-2 6M20 4v7h-7",
  stop: "M7 7h10v10H7z",
  start: "M8 5l11 7-11 7z",
  restart: "M4 12a8 8 0 1 0 2.5-5.8M4 4v5h5",
  migrate: "M5 8h14M15 4l4 4-4 4M19 16H5M9 12l-4 4 4 4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 9.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 1 0 0-5",
  warn: "M12 4L2.5 20h19zM12 10v4M12 17h.01",
  pause: "M8 5v14M16 5v14",
  key: "M14 10a4 4 0 1 0-4 4l1-1h2v-2h2zM8 10h.01M13 12l7 7v2h-3v-2h-2v-2",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Flame() {
  return (
    <svg class="flame" width="22" height="22" viewBox="0 0 24 24" aria-hidden="true">
      <path d="M12.6 1.6c.5 3.4-1.2 5.3-3 7.2C7.7 10.9 5.6 13 5.6 16.3c0 3.7 2.9 6.3 6.4 6.3s6.4-2.6 6.4-6.3c0-2.7-1.2-4.7-2.3-6.2-.3 1.4-.9 2.3-1.9 2.9.6-4.2-.2-8.3-1.6-11.4z" />
      <path class="core" d="M12.2 12.8c.2 1.5-.6 2.3-1.3 3.1-.6.7-1.1 1.3-1.1 2.3 0 1.4 1 2.3 2.3 2.3s2.3-.9 2.3-2.3c0-2.1-1.3-3.8-2.2-5.4z" />
    </svg>
  );
}

export function Hidden({ children }: { children: ComponentChildren }) {
  return <span class="hidden">{children}</span>;
}
