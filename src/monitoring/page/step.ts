import { cpuText, sizeText } from './amounts.ts';
import type { Step } from '../../resize/index.ts';

/** Formats a step: the file and its values before and after, with container names instead of ids. */
export function stepText(step: Step, names: ReadonlyMap<string, string>): string {
  switch (step.kind) {
    case 'volume':
      return `volume ${step.volume}: ${change(step, sizeText)}`;
    case 'pod-memory':
      return `pod memory.max: ${change(step, sizeText)}`;
    case 'pod-cpu':
      return `pod cpu.max: ${change(step, cpuText)}`;
    case 'pod-weight':
      return `pod cpu.weight: ${change(step, String)}`;
    case 'pod-unified':
      return `pod ${step.key}: ${change(step, String)}`;
    case 'burst':
      return `${step.id === undefined ? 'pod' : nameIn(names, step.id)} cpu.max.burst: ${change(step, String)}`;
    case 'container': {
      const { id, memory, cpu, shares } = step;
      const changes = [
        ...(memory === undefined ? [] : [`memory.max: ${change(memory, sizeText)}`]),
        ...(cpu === undefined ? [] : [`cpu.max: ${change(cpu, cpuText)}`]),
        ...(shares === undefined ? [] : [`cpu shares: ${change(shares, String)}`]),
      ];
      return `${nameIn(names, id)} ${changes.join(', ')}`;
    }
    case 'runtime':
      return 'runtime';
  }
}

const nameIn = (names: ReadonlyMap<string, string>, id: string): string => names.get(id) ?? id.slice(0, 13);

const change = <Value>({ from, to }: { from: Value; to: Value }, text: (value: Value) => string): string =>
  `${text(from)} → ${text(to)}`;
