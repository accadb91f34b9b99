import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CpuMax } from '../../../src/core/quantities/numbers.ts';
import type { Amounts, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { LiveContainer, PodState, ContainerLimits } from '../../../src/sandbox/pods/pod-state.ts';
import { type Step, describeStep, type PodTarget } from '../../../src/sandbox/plan/step.ts';

/** Formats a pod, its requested changes and its plan for the message of a failed property. */
export function describeCase(state: PodState, target: PodTarget, steps: readonly Step[]): string {
  const { overhead } = state;
  return [
    '',
    `pod: ${limits(state)}, overhead ${size(overhead.memory)} ${cpuText(overhead.cpu)}`,
    ...state.containers.map((container) => `  ${container.id}: ${limits(container)}`),
    ...(state.declared?.containers ?? []).map((container) => `  ${declaredText(container)}`),
    ...(state.declared?.limits ? [`  pod level: ${amountsText(state.declared.limits)}`] : []),
    ...state.volumes.map((volume) => `  volume ${volume.name}: ${size(volume.size)}`),
    `target: ${limits(target)}`,
    ...(target.containers ?? []).map((change) => `  ${change.id}: ${limits(change)}`),
    ...[...target.volumes].map(([name, to]) => `  volume ${name}: ${size(to)}`),
    'steps:',
    ...steps.map((step) => `  ${inMebibytes(describeStep(step))}`),
    '',
  ].join('\n');
}

function limits({ memory, cpu, shares }: Partial<LiveContainer | ContainerLimits>): string {
  const parts = [
    ...(memory === undefined ? [] : [`memory ${size(memory)}`]),
    ...(cpu === undefined ? [] : [`cpu ${cpuText(cpu)}`]),
    ...(shares === undefined ? [] : [`shares ${shares}`]),
  ];
  return parts.length === 0 ? 'unchanged' : parts.join(', ');
}

const declaredText = ({ name, kind, state, limits = {} }: DeclaredContainer): string =>
  `${name} is an ${kind} container, ${state}${state === 'running' ? '' : `: ${amountsText(limits)}`}`;

const amountsText = ({ memory, milliCpu }: Amounts): string =>
  `memory ${size(memory ?? 'max')}, cpu ${milliCpu === undefined ? 'max' : `${milliCpu}m`}`;

const cpuText = ({ quota, period }: CpuMax): string => `${quota}/${period}`;

const size = (value: number | 'max'): string =>
  value !== 'max' && value > 0 && value % MiB === 0 ? `${value / MiB}Mi` : String(value);

const inMebibytes = (text: string): string => text.replaceAll(/\d{7,}/g, (digits) => size(Number(digits)));
