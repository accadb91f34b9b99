/** Setting a node up for the shim, and taking it off again: what has to be there, what is changed, and how that is undone. */
export { carryOut, type Ended } from './change.ts';
export { diagnose } from './checks.ts';
export { copyProgram } from './program.ts';
export { OWN_NODE } from './program-files.ts';
export { type Finding, findingsOf, worstOf } from './finding.ts';
export { type Plan, planInstall, planUninstall } from './install.ts';
export { Refusal } from './kubelet-setting.ts';
export type { Node } from './node.ts';
export { nodeProgramOf, type Program } from './programs.ts';
export type { Site } from './site.ts';
