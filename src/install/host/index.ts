/** The machine that the installer runs on: its paths, files, units, programs and runtime, and changes that can be rolled back. */
export { type Change, type ChangesResult, applyChanges, combineChanges, probeChanges } from './change.ts';
export { readSaved, removing, writing } from './files.ts';
export { changeOfVersion, installedVersion } from './installed-version.ts';
export type { Node } from './node.ts';
export { OWN_NODE, filesIn } from './program-files.ts';
export {
  type Program,
  type ProgramFile,
  filesOf,
  nodeProgramOf,
  originIn,
  originOf,
  resizectlOf,
  resizectlStartOf,
  startOf,
} from './programs.ts';
export { type Runtime, type ShimReport, queryRuntime, queryShim } from './query-runtime.ts';
export { serviceFlags } from './service-flags.ts';
export {
  BYPASS,
  FALLBACK,
  SERVICE,
  SOCKETS,
  STARTED_UNITS,
  type Site,
  TAKEOVER,
  UNITS,
  UNIT_FILES,
  shimEndpoint,
  socketOf,
} from './site.ts';
export { stopUnits, systemctl, unitProperties } from './systemctl.ts';
export { assertReplaceable } from './writable.ts';
export { type Wait, waitUntil } from './waiting.ts';
