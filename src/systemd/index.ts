/** systemd as the shim's supervisor: inherited sockets, sd_notify and the watchdog. */
export { type BypassParts, type BypassTimes, BypassWatch } from './bypass.ts';
export { type BypassFiles, lastBypassTarget, takeBypassFiles, writeBypassTarget } from './bypass-files.ts';
export {
  type PassedSocket,
  PassedSocketError,
  type PassedSockets,
  type SocketName,
  socketNames,
  takePassedSockets,
} from './descriptors.ts';
export {
  type Supervisor,
  type SupervisorVariables,
  noSupervisor,
  superviseBy,
  takeSupervisorVariables,
} from './supervisor.ts';
