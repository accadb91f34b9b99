/** Setting a node up for the shim: what has to be there, and whether it is. */
export { diagnose } from './checks.ts';
export { type Finding, worstOf } from './finding.ts';
export type { Node } from './node.ts';
