import { fullestOf, roundedSize, shareOf } from '../../core/quantities/index.ts';
import { table } from '../output/index.ts';
import type { Figures, PodFigures, VolumeFigures } from './figures.ts';

/** The table of `resizectl top`: one row for each pod. @param withContainers one row for each container, below its pod */
export function topTable(pods: readonly PodFigures[], withContainers: boolean): string {
  if (pods.length === 0) return 'no pods on this node\n';
  const all = pods.flatMap(({ own, containers }) => [...(own === undefined ? [] : [own]), ...containers]);
  // A kernel has pressure stall information for all of its cgroups, or for none.
  const hasStalls = all.some(
    ({ cpuStalled, memoryStalled }) => cpuStalled !== undefined || memoryStalled !== undefined,
  );
  const headings = [
    ...['NAMESPACE', 'NAME', ...(withContainers ? ['CONTAINER'] : [])],
    ...['PRESSURE', 'CPU', 'CPU LIMIT', 'MEMORY', 'UNRECLAIMABLE', 'MEMORY LIMIT'],
    ...(hasStalls ? ['CPU STALLED', 'MEMORY STALLED'] : []),
    'FULLEST VOLUME',
  ];
  const cells = (of: Figures, volume: string): string[] => [
    ...[percent(of.pressure), cpuText(of.cpu), of.cpuLimit, roundedSize(of.memory)],
    ...[unreclaimableText(of), of.memoryLimit === 'max' ? 'max' : roundedSize(of.memoryLimit)],
    ...(hasStalls ? [percent(of.cpuStalled), percent(of.memoryStalled)] : []),
    volume,
  ];
  const rows = pods.flatMap(({ identity, own, unreadable, containers, volumes }) => {
    const names = [identity.namespace, identity.name];
    if (own === undefined) return [[...names, ...(withContainers ? [''] : []), '?', unreadable]];
    const ofPod = [...names, ...(withContainers ? [''] : []), ...cells(own, volumeText(volumes))];
    const ofContainers = containers.map((one) => [...names, one.name, ...cells(one, '')]);
    return withContainers ? [ofPod, ...ofContainers] : [ofPod];
  });
  return table([headings, ...rows]);
}

const percent = (value: number | undefined): string =>
  value === undefined ? '' : `${value < 10 && value > 0 ? value.toFixed(1) : Math.round(value)}%`;

/** CPUs as millicores, like the limits: `120m`. */
const cpuText = (cpu: number | undefined): string => (cpu === undefined ? '' : `${Math.round(cpu * 1000)}m`);

function unreclaimableText({ unreclaimable, memoryLimit }: Figures): string {
  if (unreclaimable === undefined) return '';
  const share = memoryLimit === 'max' ? '' : ` (${percent(shareOf(unreclaimable, memoryLimit))})`;
  return `${roundedSize(unreclaimable)}${share}`;
}

function volumeText(volumes: readonly VolumeFigures[]): string {
  const fullest = fullestOf(volumes);
  return fullest === undefined ? '' : `${fullest.name} ${percent(shareOf(fullest.used, fullest.size))}`;
}

/** The object of `-o json`. Absent: not known, or no limit. */
export const topObject = (pods: readonly PodFigures[]): object => ({
  pods: pods.map(({ identity, own, unreadable, containers, volumes }) => ({
    identity,
    ...(own === undefined ? { unreadable } : figuresObject(own)),
    containers: containers.map((one) => ({ name: one.name, ...figuresObject(one) })),
    volumes: volumes.map(({ name, used, size }) => ({ name, used_bytes: used, size_bytes: size })),
  })),
});

function figuresObject(of: Figures): object {
  const { pressure, cpu, cpuLimit, memory, unreclaimable, memoryLimit, cpuStalled, memoryStalled } = of;
  return {
    pressure_percent: rounded(pressure),
    ...(cpu !== undefined && { cpu_cores: rounded(cpu) }),
    cpu_limit: cpuLimit,
    memory_used_bytes: memory,
    ...(unreclaimable !== undefined && { memory_unreclaimable_bytes: unreclaimable }),
    ...(memoryLimit !== 'max' && { memory_limit_bytes: memoryLimit }),
    ...(cpuStalled !== undefined && { cpu_stalled_percent: cpuStalled }),
    ...(memoryStalled !== undefined && { memory_stalled_percent: memoryStalled }),
  };
}

const rounded = (value: number): number => Math.round(value * 1000) / 1000;
