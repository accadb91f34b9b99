/** Listening unix sockets: created with the backend's permissions, or inherited from systemd. */
export { listenOnInherited } from './inherited.ts';
export { listen } from './listener.ts';
export type { ListenOptions, Listener } from './listener.ts';
export { type PeerOf, loadPeerOf, unknownPeer } from './peer.ts';
