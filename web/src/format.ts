// Numbers and times as text.
export interface Money {
  readonly amountMicros: number;
  readonly currency: string;
}

export function money(value: Money | null | undefined, digits = 3): string {
  if (!value) return "–";
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return `$${(value.amountMicros / 1_000_000).toLocaleString("en-US", options)}`;
}

// A month has 730 hours, as in other clouds’ price lists.
export function perMonth(value: Money | null | undefined): string {
  if (!value) return "–";
  return `$${Math.round((value.amountMicros / 1_000_000) * 730).toLocaleString("en-US")}`;
}

// For durations that may be below a second.
export function brief(milliseconds: number): string {
  return milliseconds < 1000 ? `${Math.max(0, Math.round(milliseconds))} ms` : duration(milliseconds);
}

export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ${seconds % 60}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours}h ${minutes % 60}m`;
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

// A length that someone chose: 4h, not 4h 0m.
export function span(milliseconds: number): string {
  return duration(milliseconds).replace(/ 0[a-z]$/, "");
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return duration(value * 1000);
}

export function clock(at: string): string {
  return new Date(at).toLocaleTimeString("en-GB");
}

export function moment(at: string): string {
  return new Date(at).toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

// HEALTH_CHECKING -> Health checking
export function words(constant: string): string {
  const lower = constant.replaceAll("_", " ").toLowerCase();
  return lower.charAt(0).toUpperCase() + lower.slice(1);
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en-US")} ${number === 1 ? one : many}`;
}

// What happened, and what can be done about it.
export function explain(error: { readonly message: string; readonly help?: string | null }): string {
  if (!error.help) return error.message;
  // Messages of the provider often end without a full stop.
  return `${error.message}${/[.!?…]$/.test(error.message) ? "" : "."} ${error.help}`;
}
