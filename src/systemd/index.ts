/** systemd as the shim's supervisor: inherited sockets, sd_notify and the watchdog. */
export { BypassWatch, bypassTarget, lastBypassTarget, takeBypassFiles, writeBypassTarget } from './bypass.ts';
export { type PassedSocket, takePassedSockets } from './descriptors.ts';
export { type Supervisor, superviseBy, takeSupervisorVariables } from './supervisor.ts';
