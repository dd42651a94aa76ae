// Runs a mutation and shows its outcome as a toast.
import { ApiError, type MutationError } from "../api/request.ts";
import { explain } from "../format.ts";
import { toast } from "./toasts.ts";

interface Titles {
  // Without it, success shows no toast.
  readonly succeeded?: string;
  readonly rejected?: string;
  readonly failed?: string;
}

export async function runMutation(mutate: () => Promise<readonly MutationError[]>, titles: Titles = {}): Promise<boolean> {
  try {
    const [error] = await mutate();
    if (error) toast({ kind: "bad", title: titles.rejected ?? "Request rejected", text: explain(error) });
    else if (titles.succeeded) toast({ kind: "good", title: titles.succeeded });
    return error === undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast({ kind: "bad", title: titles.failed ?? "Request failed", text: error.message });
    return false;
  }
}
