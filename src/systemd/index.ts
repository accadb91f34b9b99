/** systemd as the shim's supervisor: inherited sockets, sd_notify and the watchdog. */
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
