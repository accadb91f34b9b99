/** Cgroup writes through systemd, for nodes where it owns the cgroups of pods. */
export { Busctl } from './busctl.ts';
export type { Systemd, UnitState } from './busctl.ts';
export { DriverCgroupTree } from './tree.ts';
