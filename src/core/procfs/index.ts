/** What procfs tells about the node. */
export {
  SOCK_STREAM,
  SO_ACCEPTCON,
  SS_CONNECTED,
  SS_CONNECTING,
  unixSockets,
} from './unix-sockets.ts';
