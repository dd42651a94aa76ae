// Another image or start command for an instance: its machine is reset with it.
import { requestWithRetry } from "../api/request.ts";
import { UpgradeInstance, type UpgradeInstanceInput } from "../generated/api.ts";
import { type Option, useCredentials } from "../live/credentials.ts";
import type { Detail } from "../live/instance.ts";
import { type Input, ObjectForm } from "../ui/objects.tsx";

function inputsOf(credentials: readonly Option[]): Input[] {
  return [
    { name: "image", label: "Image", placeholder: "nginx:1.28" },
    { name: "command", label: "Start command", hint: "empty: the image’s", isOptional: true },
    { name: "registryAuthId", label: "Registry credential", options: credentials, isOptional: true },
  ];
}

export function UpgradePanel({ instance, refresh }: { instance: Detail; refresh: () => void }) {
  const credentials = useCredentials("As now");
  const before = { image: instance.image, command: instance.command ?? "" };
  return (
    <ObjectForm
      key={`${before.image} ${before.command}`}
      title="Upgrade"
      action="Upgrade"
      succeeded="Upgrade accepted"
      inputs={inputsOf(credentials)}
      initial={before}
      question={{
        title: `Upgrade ${instance.name}?`,
        body: "Its machine is reset with the new image. Data that is only in memory or on the container’s disk may be lost.",
        action: "Upgrade",
        isDangerous: true,
      }}
      note="Variables and everything else stay. An exited instance is started."
      submit={async ({ image = "", command = "", registryAuthId }, idempotencyKey) => {
        const input: UpgradeInstanceInput = {
          id: instance.id,
          idempotencyKey,
          ...(image !== before.image && { image }),
          ...(command !== before.command && { command }),
          ...(registryAuthId && { registryAuthId }),
        };
        return (await requestWithRetry(UpgradeInstance, { input })).upgradeInstance.errors;
      }}
      done={refresh}
    />
  );
}
