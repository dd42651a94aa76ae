export function MarketView(_: Record<string, unknown>) { return <div class="view"><h1>Market</h1></div>; }
