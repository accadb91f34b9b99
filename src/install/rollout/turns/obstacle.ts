import type { Lease } from './lease.ts';
import { type Work, haltOf, pauseOf, turnsOf, vouchedOf } from './state.ts';

/** What keeps a node from its turn. */
export type Obstacle =
  | { readonly kind: 'none' }
  /** `left`: nodes whose pod has ended in its turn, as in each removal: a turn is free once such a node is Ready. */
  | { readonly kind: 'wait'; readonly why: string; readonly left: readonly string[] }
  /** Not enough canary nodes vouch for the release; a canary node does not wait for them. */
  | { readonly kind: 'canaries'; readonly why: string }
  /** A node that has the turn does not renew it. */
  | { readonly kind: 'lost'; readonly node: string }
  /** The pod of a node has ended in the turn of a removal, and the node is Ready. */
  | { readonly kind: 'left'; readonly node: string };

/** The rules of turns. */
export interface TurnRules {
  /** Name of this node. A new pod continues the turn of a killed one. */
  readonly holder: string;
  /** How many nodes may be changed at the same time. */
  readonly parallel: number;
  /** Revision of the DaemonSet that this pod belongs to; empty if unknown. */
  readonly revision: string;
  /** How many canary nodes have to vouch for a revision before other nodes get it; 0: none. */
  readonly canaries: number;
}

export interface Asking {
  readonly work: Work;
  readonly isCanary: boolean;
  /** Whether a node has not renewed its turn in time. */
  readonly isSilent: (node: string) => boolean;
  /** Whether a node from which the shim is removed has not renewed its turn for a while: the restarted kubelet has ended its pod. */
  readonly hasLeft: (node: string) => boolean;
}

/** The names that a line of the log lists. */
const SHOWN = 3;

/** Pause, halt and canaries stop installations, but not removals. Throws ApiUnreached for an invalid annotation. */
export function obstacle(lease: Lease, rules: TurnRules, { work, isCanary, isSilent, hasLeft }: Asking): Obstacle {
  const found = work === 'install' ? obstacleOfInstallation(lease, rules, isCanary) : undefined;
  if (found !== undefined) return found;
  const others = Object.keys(turnsOf(lease)).filter((name) => name !== rules.holder);
  const lost = others.find(isSilent);
  if (lost !== undefined) return { kind: 'lost', node: lost };
  if (others.length < rules.parallel) return { kind: 'none' };
  const rest = others.length - SHOWN;
  const names = others.slice(0, SHOWN).join(', ') + (rest > 0 ? ` and ${rest} more` : '');
  return { kind: 'wait', why: `it is the turn of ${names}`, left: others.filter(hasLeft) };
}

function obstacleOfInstallation(lease: Lease, rules: TurnRules, isCanary: boolean): Obstacle | undefined {
  const paused = pauseOf(lease);
  if (paused !== undefined) return { kind: 'wait', why: `paused: ${paused}`, left: [] };
  const why = haltOf(lease, rules.revision);
  if (why !== undefined)
    return { kind: 'wait', why: `halted: ${why} (see docs/kubernetes.md for how to continue)`, left: [] };
  if (isCanary || rules.canaries === 0) return undefined;
  const vouching = vouchedOf(lease, rules.revision).length;
  if (vouching >= rules.canaries) return undefined;
  return { kind: 'canaries', why: `${vouching} of ${rules.canaries} canary nodes have passed with this release` };
}
