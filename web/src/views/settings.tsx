export function SettingsView(_: Record<string, unknown>) { return <div class="view"><h1>Settings</h1></div>; }
