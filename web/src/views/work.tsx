export function WorkView(_: Record<string, unknown>) { return <div class="view"><h1>Work</h1></div>; }
