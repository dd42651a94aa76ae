// Asking for something and saying how that went, wherever it is asked from.
import { ApiError, type Refusal } from "../api/request.ts";
import { toast } from "./toasts.ts";

interface Words {
  // Said when all went well; without it nothing is.
  readonly done?: string;
  readonly refused?: string;
  readonly failed?: string;
}

export async function told(act: () => Promise<readonly Refusal[]>, words: Words = {}): Promise<boolean> {
  try {
    const [refusal] = await act();
    if (refusal) toast({ kind: "bad", title: words.refused ?? "Refused", text: refusal.message });
    else if (words.done) toast({ kind: "good", title: words.done });
    return refusal === undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast({ kind: "bad", title: words.failed ?? "Not done", text: error.message });
    return false;
  }
}
