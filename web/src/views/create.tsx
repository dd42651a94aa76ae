export function CreateView(_: Record<string, unknown>) { return <div class="view"><h1>Create</h1></div>; }
