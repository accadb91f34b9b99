/** What there is between us and whoever starts us: sockets that it passes on, and what it wants to be told. */
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
