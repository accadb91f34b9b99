/** Installs the shim on this node and uninstalls it: checks, reversible changes, and their rollback. */
export { applyChanges, type ChangesResult, probeChanges } from './host/change.ts';
export { takeInstallLock } from './host/install-lock.ts';
export { nodeProgramOf, OWN_NODE, type Program } from './host/programs.ts';
export { PROVIDED_KUBECONFIG } from './host/provided-kubeconfig.ts';
export type { Node, Site } from './host/site.ts';
export { serviceFlags } from './host/systemd.ts';
export { findKubeletUnit, findPrefix, runtimeOfKubelet, USUAL_UNIT } from './kubelet/platform.ts';
export { Refusal } from './kubelet/setting.ts';
export { bypassState, isShimActive, turnBypassOff, turnBypassOn } from './node/bypass.ts';
export { kubeletAfterInstall } from './node/check-kubelet.ts';
export { diagnose, plannedFlags } from './node/checks.ts';
export { type Finding, worstOf } from './node/finding.ts';
export { type Plan, planInstall, planUninstall } from './node/install.ts';
export { hasProgram } from './node/program.ts';
export { withLogLine } from './node/service.ts';
export { planSwitch } from './node/switch.ts';
export { KUBELET_FILES } from './node/way-back.ts';
