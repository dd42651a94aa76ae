// The machines that an instance has had, as lanes of one time line; shown once there was more than one.
import { moment, words } from "../format.ts";
import type { Detail } from "../live/instance.ts";
import { now } from "../live/now.ts";
import { Panel } from "../ui/parts.tsx";

type Machine = Detail["machines"][number];

const HEIGHT = 10;
const WIDTH = 100;

export function MachinesPanel({ instance }: { instance: Detail }) {
  const { machines } = instance;
  if (machines.length < 2) return null;
  const from = Math.min(...machines.map((each) => Date.parse(each.beganAt)));
  const to = Math.max(now.value, ...machines.map((each) => (each.endedAt ? Date.parse(each.endedAt) : 0)), from + 1000);
  const at = (time: string | null) => (((time ? Math.min(Date.parse(time), to) : to) - from) / (to - from)) * WIDTH;
  return (
    <Panel title="Machines" aside={<span class="muted figures">{machines.length}</span>}>
      <ol class="lanes body">
        {machines.map((each) => (
          <li key={each.number}>
            <span>
              {each.number}. {each.region}
            </span>
            <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} height={HEIGHT} preserveAspectRatio="none" role="img" aria-label={describe(each)}>
              <rect class="rail" x={0} y={HEIGHT / 2 - 0.5} width={WIDTH} height={1} />
              <rect class={each.endedAt ? "past" : each.removingSince ? "warning" : "good"} x={at(each.beganAt)} y={1} width={Math.max(1, at(each.endedAt) - at(each.beganAt))} height={HEIGHT - 2}>
                <title>{describe(each)}</title>
              </rect>
            </svg>
            <small class="muted">{stateOf(each)}</small>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function stateOf(machine: Machine): string {
  if (machine.endReason) return words(machine.endReason);
  if (machine.removingSince) return Date.parse(machine.removingSince) > now.value ? "Draining" : "Being removed";
  return machine.servingSince ? "Serving" : "Coming up";
}

function describe(machine: Machine): string {
  const end = machine.endedAt ? ` until ${moment(machine.endedAt)}` : "";
  return `Machine ${machine.number} in ${machine.region ?? "an unknown region"}, from ${moment(machine.beganAt)}${end}: ${stateOf(machine).toLowerCase()}`;
}
