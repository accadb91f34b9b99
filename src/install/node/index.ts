/** Installs the shim on this node and uninstalls it: checks, reversible changes, and their rollback. */
export {
  type ChangesResult,
  type Node,
  OWN_NODE,
  PROVIDED_KUBECONFIG,
  type Program,
  type Site,
  applyChanges,
  probeChanges,
  serviceFlags,
  nodeProgramOf,
  takeInstallLock,
} from '../host/index.ts';
export {
  bypassState,
  isShimActive,
  turnBypassOff,
  turnBypassOn,
} from './bypass.ts';
export { plannedFlags } from './check-configuration.ts';
export { kubeletAfterInstall } from './check-kubelet.ts';
export { diagnose } from './checks.ts';
export { withLogLine } from './service.ts';
export { copyProgram } from './program.ts';
export { type Finding, worstOf } from './finding.ts';
export { type Plan, planInstall, planUninstall } from './install.ts';
export { planSwitch } from './switch.ts';
export { KUBELET_FILES, linesBack } from './way-back.ts';
export { Refusal } from '../kubelet/index.ts';
