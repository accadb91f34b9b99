import type { Scenario } from '../scenario.ts';
import { wholePod } from './resize-pod.ts';
import { restarted, usageHolds } from './restart.ts';
import { oneContainer } from './update-container.ts';
import { podItself } from './update-pod.ts';

const all: readonly Scenario[] = [...wholePod, ...oneContainer, ...podItself, ...restarted, ...usageHolds];

/**
 * Returns a share of the scenarios that have a text in their name: `1/2` is every second one, starting with the first.
 * Without a share, returns all of them.
 */
export function scenarios(share = '', title = ''): readonly Scenario[] {
  const named = all.filter(({ name }) => name.includes(title));
  if (share === '') return named;
  const [, part, parts] = /^(\d)\/(\d)$/.exec(share) ?? [];
  if (part === undefined) throw new Error(`${share} is not a share of the scenarios`);
  return named.filter((_scenario, index) => index % Number(parts) === Number(part) - 1);
}
