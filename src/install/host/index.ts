/** The machine that the installer runs on: its paths, files, units, programs and runtime, and changes that can be rolled back. */
export { type Change, type ChangesResult, applyChanges, combineChanges, probeChanges } from './change.ts';
export { readSaved, removing, type SavedFile, writing } from './files.ts';
export { changeOfVersion, installedVersion } from './installed-version.ts';
export { takeInstallLock } from './lock/index.ts';
export { expandGlob } from './glob.ts';
export type { Node } from './node.ts';
export { OWN_NODE, filesIn } from './program-files.ts';
export {
  EXECUTABLE,
  type Program,
  type ProgramFile,
  filesOf,
  nodeProgramOf,
  originIn,
  originOf,
  resizectlOf,
  resizectlStartOf,
  startOf,
  unitWord,
} from './programs.ts';
export { type ShimReport, answerOf, queryRuntime, queryShim } from './query-runtime.ts';
export {
  PROVIDED_KUBECONFIG,
  planKubeconfig,
  removingKubeconfig,
} from './provided-kubeconfig.ts';
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
} from './site.ts';
export { stopUnits, systemctl, unitProperties } from './systemctl.ts';
export { unitPlaces } from './unit-places/index.ts';
export { assertReplaceable } from './writable.ts';
export { type Wait, waitUntil } from './waiting.ts';
