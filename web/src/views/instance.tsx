export function InstanceView(_: Record<string, unknown>) { return <div class="view"><h1>Instance</h1></div>; }
