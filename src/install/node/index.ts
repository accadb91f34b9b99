/** Installs the shim on this node and uninstalls it: checks, reversible changes, and their rollback. */
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
